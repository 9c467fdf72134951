"""Execute workflow commands: in the engine that runs on the store, or with an engine of our own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output
from kingdom.cli.workflow.view import next_steps
from kingdom.cli.workflow.watch import exit_code, watch_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.cli.workflow.view import WorkflowView
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import WorkflowStore

_COMMAND_SECONDS: Final = 120.0  # for an engine to execute a command: it may have to stop agents first
_START_SECONDS: Final = 600.0  # for an engine to start a workflow: it may have to clone repositories first
_WEB_ENGINE_SECONDS: Final = 5.0  # for a web server to become the engine when no other process is
_ACTIVE_STATUSES: Final = ("PREPARING", "RUNNING", "RESUMING")
_POLL_SECONDS: Final = 0.5  # between two looks at other workflows


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command of :func:`kingdom.workflow.engine.command_handlers` for one workflow."""

    kind: str
    workflow_id: str
    arguments: dict[str, Any]


async def execute(context: WorkflowContext, request: CommandRequest) -> None:
    """Execute a command here, or have the engine execute it that runs on the store."""
    from kingdom.workflow.engine import EngineAlreadyRunning, EngineLease, command_handlers

    lease = EngineLease(context.store)
    try:
        await lease.take()
    except EngineAlreadyRunning:
        await _ask_engine(context.store, request, _COMMAND_SECONDS)
        return
    try:
        await command_handlers(context)[request.kind](request.workflow_id, **request.arguments)
    finally:
        await lease.release()


async def hand_over(place: WorkflowHome, store: WorkflowStore, request: CommandRequest) -> None:
    """Have the engine that runs on the store start a workflow, and do not watch it."""
    from kingdom.web.record import running_server

    loop = asyncio.get_running_loop()
    deadline = loop.time() + (0.0 if running_server(place.root.parent) is None else _WEB_ENGINE_SECONDS)
    while not await engine_runs(store):
        if loop.time() >= deadline:
            raise output.CommandError(
                "NO_ENGINE",
                "no engine runs here: start one with kingdom workflow engine, or repeat the command without --detach",
            )
        await asyncio.sleep(_POLL_SECONDS)
    if not await _is_active(store, request):
        await _ask_engine(store, request, _START_SECONDS)


async def run_request(
    place: WorkflowHome, context: WorkflowContext, request: CommandRequest, view: WorkflowView
) -> int:
    """Run a workflow and show it until it rests; return the exit code."""
    from kingdom.workflow.engine import EngineAlreadyRunning

    if not await engine_runs(context.store):
        with contextlib.suppress(EngineAlreadyRunning):  # another process became the engine first
            return await _run_here(place, context, request, view)
    return await _run_elsewhere(place, context.store, request, view)


async def engine_runs(store: WorkflowStore) -> bool:
    """Return whether an engine holds the lock of the store."""
    lock = await store.lock_engine()
    if lock is None:
        return True
    await lock.release()
    return False


async def _ask_engine(store: WorkflowStore, request: CommandRequest, seconds: float) -> None:
    from kingdom.workflow.commands import send_command, wait_for_command

    asked = await send_command(store.bus, request.kind, request.workflow_id, **request.arguments)
    await wait_for_command(store.bus, asked, seconds)


async def _run_elsewhere(place: WorkflowHome, store: WorkflowStore, request: CommandRequest, view: WorkflowView) -> int:
    """Have the engine run the workflow that holds the store, and watch. Ctrl-C only stops watching."""

    after = await store.last_event_number(request.workflow_id)

    async def begin() -> None:
        if not await _is_active(store, request):
            await _ask_engine(store, request, _START_SECONDS)

    started = asyncio.create_task(begin())
    try:
        with view:
            overview = await _show_until_resting(place, store, request, after, view, started)
    finally:
        await _cancel_and_wait(started)
    return _finish(overview, view)


async def _run_here(place: WorkflowHome, context: WorkflowContext, request: CommandRequest, view: WorkflowView) -> int:
    """Be the engine until the workflow rests. Ctrl-C pauses it."""
    from kingdom.workflow.engine import command_handlers, run_engine
    from kingdom.workflow.errors import WorkflowError

    store = context.store
    carry = command_handlers(context)

    async def begin() -> None:
        if not active:
            await carry[request.kind](request.workflow_id, **request.arguments)

    active = await _is_active(store, request)
    after = await store.last_event_number(request.workflow_id)
    with stop_signals() as stop:
        async with run_engine(context) as engine:
            started = asyncio.create_task(begin())
            broken = asyncio.create_task(engine.wait())
            try:
                with view:
                    overview = await _show_until_resting(place, store, request, after, view, started, broken, stop)
                if not stop.is_set():
                    await _wait_for_other_workflows(store, broken, stop)
                else:
                    with contextlib.suppress(WorkflowError):  # it rests already, or never started
                        await carry["PauseWorkflow"](request.workflow_id)
                    view.say(
                        f"paused: kingdom workflow resume {request.workflow_id} --retry continues where it stopped"
                    )
                    return output.INTERRUPTED
            finally:
                await _cancel_and_wait(started)
                await _cancel_and_wait(broken)
    return _finish(overview, view)


async def _show_until_resting(
    place: WorkflowHome,
    store: WorkflowStore,
    request: CommandRequest,
    after: int,
    view: WorkflowView,
    started: asyncio.Future[Any],
    broken: asyncio.Task[None] | None = None,
    stop: asyncio.Event | None = None,
) -> WorkflowOverview | None:
    """Show a workflow until it has started and rests, or ``stop`` is set. Raises errors of the tasks."""
    overview = None
    stream = watch_frames(place, store, request.workflow_id, after=after)
    async with contextlib.aclosing(stream):
        while stop is None or not stop.is_set():
            ready = started.done()  # checked before the frame is read, so that the frame shows what it did
            frame = await anext(stream, None)
            if frame is None:  # it was deleted
                break
            view.show(frame)
            overview = frame.overview
            for task in (started, broken):
                if task is not None and task.done():
                    task.result()
            if ready and frame.resting:
                break
    return overview


async def _wait_for_other_workflows(store: WorkflowStore, broken: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Stay the engine until the workflows rest that other processes have started on it."""
    printed = False
    while not stop.is_set():
        async with store.reading() as tx:
            active = await tx.workflows.with_status(*_ACTIVE_STATUSES)
        if not active:
            return
        if not printed:
            names = ", ".join(workflow.id for workflow in active[:5])
            output.say(f"this engine also runs {names}; Ctrl-C leaves them to the next engine")
            printed = True
        if broken.done():
            broken.result()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await stop.wait()


async def _is_active(store: WorkflowStore, request: CommandRequest) -> bool:
    """Return whether the workflow runs already, or did when its engine was killed: then no command is needed.

    A request to go back is sent all the same, and refused with the reason.
    """
    if "checkpoint_id" in request.arguments:
        return False
    async with store.reading() as tx:
        return (await tx.workflows.get(request.workflow_id)).status in _ACTIVE_STATUSES


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Return an event that Ctrl-C and SIGTERM set; a second signal ends the process as usual."""
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
    """Cancel a task and wait for its end; its errors have been reported elsewhere."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
