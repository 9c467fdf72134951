"""Running a workflow from the command line: with an engine of our own, or by handing it to the one that runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output
from kingdom.cli.session import open_workflow_parts, open_workflow_store
from kingdom.cli.workflow.view import next_steps
from kingdom.cli.workflow.watch import exit_code, watch_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.cli.workflow.view import WorkflowView
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import WorkflowStore

_START_SECONDS: Final = 600.0  # seconds for an engine to begin: it may have to clone
_ACTIVE_STATUSES: Final = ("PREPARING", "RUNNING", "RESUMING")
_POLL_SECONDS: Final = 0.5  # seconds between looks at other workflows


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """What is to happen: a command of :func:`kingdom.workflow.engine.command_handlers`."""

    kind: str
    workflow_id: str
    arguments: dict[str, Any]


async def run_request(place: WorkflowHome, wish: CommandRequest, view: WorkflowView, *, detach: bool) -> int:
    """Have a workflow run, and show it until it rests; returns the exit code.

    With ``detach`` only an engine that runs already is asked, and nothing is shown.
    """
    from kingdom.workflow.engine import EngineAlreadyRunning

    async with open_workflow_store(place) as store:
        taken = await engine_runs(store)
    if not taken and detach:
        raise output.CommandError(
            "NO_ENGINE",
            "no engine runs here that could go on with it: leave --detach out, or start one: kingdom workflow engine",
        )
    if not taken:
        with contextlib.suppress(EngineAlreadyRunning):  # another one was faster
            async with open_workflow_parts(place) as parts:
                return await _run_here(place, parts, wish, view)
    async with open_workflow_store(place) as store:
        return await _run_elsewhere(place, store, wish, view, detach=detach)


async def engine_runs(store: WorkflowStore) -> bool:
    """Whether an engine has the store."""
    lock = await store.lock_engine()
    if lock is None:
        return True
    await lock.release()
    return False


async def _run_elsewhere(
    place: WorkflowHome, store: WorkflowStore, wish: CommandRequest, view: WorkflowView, *, detach: bool
) -> int:
    """Ask the engine that runs, and look on. Ctrl-C only stops looking."""
    from kingdom.workflow.commands import send_command, wait_for_command
    from kingdom.workflow.overview import last_event_number

    after = await last_event_number(store, wish.workflow_id)

    async def begin() -> None:
        if not await _is_active(store, wish):
            asked = await send_command(store.bus, wish.kind, wish.workflow_id, **wish.arguments)
            await wait_for_command(store.bus, asked, _START_SECONDS)

    if detach:
        await begin()
        return 0
    begun = asyncio.create_task(begin())
    try:
        with view:
            overview = await _show_until_resting(place, store, wish, after, view, begun)
    finally:
        await _cancel_and_wait(begun)
    return _finish(overview, view)


async def _run_here(place: WorkflowHome, parts: WorkflowContext, wish: CommandRequest, view: WorkflowView) -> int:
    """Be the engine until the workflow rests. Ctrl-C pauses it."""
    from kingdom.workflow.engine import command_handlers, run_engine
    from kingdom.workflow.errors import WorkflowError
    from kingdom.workflow.overview import last_event_number

    store = parts.store
    carry = command_handlers(parts)

    async def begin() -> None:
        if not active:
            await carry[wish.kind](wish.workflow_id, **wish.arguments)

    active = await _is_active(store, wish)
    after = await last_event_number(store, wish.workflow_id)
    with stop_signals() as stop:
        async with run_engine(parts) as engine:
            begun = asyncio.create_task(begin())
            broken = asyncio.create_task(engine.wait())
            try:
                with view:
                    overview = await _show_until_resting(place, store, wish, after, view, begun, broken, stop)
                if not stop.is_set():
                    await _wait_for_other_workflows(store, broken, stop)
                else:
                    with contextlib.suppress(WorkflowError):  # it rests already, or never began
                        await carry["PauseWorkflow"](wish.workflow_id)
                    view.say(f"stopped: kingdom workflow resume {wish.workflow_id} --retry goes on where it was")
                    return output.INTERRUPTED
            finally:
                await _cancel_and_wait(begun)
                await _cancel_and_wait(broken)
    return _finish(overview, view)


async def _show_until_resting(
    place: WorkflowHome,
    store: WorkflowStore,
    wish: CommandRequest,
    after: int,
    view: WorkflowView,
    begun: asyncio.Future[Any],
    broken: asyncio.Task[None] | None = None,
    stop: asyncio.Event | None = None,
) -> WorkflowOverview | None:
    """Show a workflow until it has begun and rests, or we are to stop. Raises what went wrong."""
    overview = None
    stream = watch_frames(place, store, wish.workflow_id, after=after)
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


async def _wait_for_other_workflows(store: WorkflowStore, broken: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Other processes may have given this engine their workflows: it stays until these rest, too."""
    told = False
    while not stop.is_set():
        async with store.reading() as tx:
            active = await tx.workflows.with_status(*_ACTIVE_STATUSES)
        if not active:
            return
        if not told:
            names = ", ".join(workflow.id for workflow in active[:5])
            output.say(f"this engine goes on with {names}; Ctrl-C leaves them to the next one")
            told = True
        if broken.done():
            broken.result()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await stop.wait()


async def _is_active(store: WorkflowStore, wish: CommandRequest) -> bool:
    """Whether it runs already, or did when its engine was killed: then there is nothing to ask for.

    Going back is asked for all the same, and refused with the reason.
    """
    if "checkpoint_id" in wish.arguments:
        return False
    async with store.reading() as tx:
        return (await tx.workflows.get(wish.workflow_id)).status in _ACTIVE_STATUSES


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


def _finish(overview: WorkflowOverview | None, view: WorkflowView) -> int:
    if overview is None:
        return 0
    for line in next_steps(overview):
        view.say(line)
    return exit_code(overview)


async def _cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """See to it that a task is over; its errors were told where they count."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
