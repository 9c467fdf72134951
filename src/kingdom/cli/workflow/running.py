"""Running a workflow from the command line: with an engine of our own, or by handing it to the one that runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output
from kingdom.cli.workflow.session import opened, opened_parts
from kingdom.cli.workflow.watch import exit_code, frames
from kingdom.cli.workflow.watch_view import next_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.cli.workflow.watch_view import View
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import Overview
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.ports import Store

_PATIENCE: Final = 600.0  # seconds for an engine to begin: it may have to clone
_ACTIVE: Final = ("PREPARING", "RUNNING", "RESUMING")
_LOOK: Final = 0.5  # seconds between looks at other workflows


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to happen: a command of :func:`kingdom.workflow.serving.carriers`."""

    kind: str
    workflow_id: str
    arguments: dict[str, Any]


async def run(place: WorkflowHome, wish: Wish, view: View, *, detach: bool) -> int:
    """Have a workflow run, and show it until it rests; returns the exit code.

    With ``detach`` only an engine that runs already is asked, and nothing is shown.
    """
    from kingdom.workflow.lease import StoreTaken

    async with opened(place) as store:
        taken = await engine_runs(store)
    if not taken and detach:
        raise output.Failure(
            "NO_ENGINE",
            "no engine runs here that could go on with it: leave --detach out, or start one: kingdom workflow engine",
        )
    if not taken:
        with contextlib.suppress(StoreTaken):  # another one was faster
            async with opened_parts(place) as parts:
                return await _run_here(place, parts, wish, view)
    async with opened(place) as store:
        return await _hand_over(place, store, wish, view, detach=detach)


async def engine_runs(store: Store) -> bool:
    """Whether an engine has the store."""
    lock = await store.lock_engine()
    if lock is None:
        return True
    await lock.release()
    return False


async def _hand_over(place: WorkflowHome, store: Store, wish: Wish, view: View, *, detach: bool) -> int:
    """Ask the engine that runs, and look on. Ctrl-C only stops looking."""
    from kingdom.workflow.commands import answer, ask
    from kingdom.workflow.last_number import last_number

    after = await last_number(store, wish.workflow_id)

    async def begin() -> None:
        if not await _is_active(store, wish):
            asked = await ask(store.bus, wish.kind, wish.workflow_id, **wish.arguments)
            await answer(store.bus, asked, _PATIENCE)

    if detach:
        await begin()
        return 0
    begun = asyncio.create_task(begin())
    try:
        with view:
            overview = await _show(place, store, wish, after, view, begun)
    finally:
        await _end(begun)
    return _over(overview, view)


async def _run_here(place: WorkflowHome, parts: Parts, wish: Wish, view: View) -> int:
    """Be the engine until the workflow rests. Ctrl-C pauses it."""
    from kingdom.workflow.domain.errors import WorkflowError
    from kingdom.workflow.last_number import last_number
    from kingdom.workflow.serving import carriers, serving

    store = parts.store
    carry = carriers(parts)

    async def begin() -> None:
        if not active:
            await carry[wish.kind](wish.workflow_id, **wish.arguments)

    active = await _is_active(store, wish)
    after = await last_number(store, wish.workflow_id)
    with stop_signals() as stop:
        async with serving(parts) as engine:
            begun = asyncio.create_task(begin())
            broken = asyncio.create_task(engine.wait())
            try:
                with view:
                    overview = await _show(place, store, wish, after, view, begun, broken, stop)
                if not stop.is_set():
                    await _others(store, broken, stop)
                else:
                    with contextlib.suppress(WorkflowError):  # it rests already, or never began
                        await carry["PauseWorkflow"](wish.workflow_id)
                    view.say(f"stopped: kingdom workflow resume {wish.workflow_id} --retry goes on where it was")
                    return output.INTERRUPTED
            finally:
                await _end(begun)
                await _end(broken)
    return _over(overview, view)


async def _show(
    place: WorkflowHome,
    store: Store,
    wish: Wish,
    after: int,
    view: View,
    begun: asyncio.Future[Any],
    broken: asyncio.Task[None] | None = None,
    stop: asyncio.Event | None = None,
) -> Overview | None:
    """Show a workflow until it has begun and rests, or we are to stop. Raises what went wrong."""
    overview = None
    stream = frames(place, store, wish.workflow_id, after=after)
    async with contextlib.aclosing(stream):
        while stop is None or not stop.is_set():
            ready = begun.done()  # before the next look: what it did is then in the frame
            frame = await anext(stream, None)
            if frame is None:  # it was deleted
                break
            view.show(frame)
            overview = frame.overview
            for task in (begun, broken):
                if task is not None and task.done():
                    task.result()
            if ready and frame.resting:
                break
    return overview


async def _others(store: Store, broken: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Other processes may have given this engine their workflows: it stays until these rest, too."""
    told = False
    while not stop.is_set():
        async with store.reading() as tx:
            active = await tx.workflows.with_status(*_ACTIVE)
        if not active:
            return
        if not told:
            names = ", ".join(workflow.id for workflow in active[:5])
            output.say(f"this engine goes on with {names}; Ctrl-C leaves them to the next one")
            told = True
        if broken.done():
            broken.result()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await stop.wait()


async def _is_active(store: Store, wish: Wish) -> bool:
    """Whether it runs already, or did when its engine was killed: then there is nothing to ask for.

    Going back is asked for all the same, and refused with the reason.
    """
    if "checkpoint_id" in wish.arguments:
        return False
    async with store.reading() as tx:
        return (await tx.workflows.get(wish.workflow_id)).status in _ACTIVE


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set; a second one ends the process as always."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        stop.set()
        undo()

    def undo() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    try:
        yield stop
    finally:
        undo()


def _over(overview: Overview | None, view: View) -> int:
    if overview is None:
        return 0
    for line in next_steps(overview):
        view.say(line)
    return exit_code(overview)


async def _end(task: asyncio.Future[Any]) -> None:
    """See to it that a task is over; its errors were told where they count."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
