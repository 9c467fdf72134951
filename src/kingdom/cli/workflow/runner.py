"""Execute workflow commands: in the engine that runs on the store, or with an engine of our own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kingdom.cli import output
from kingdom.cli.workflow.view import next_steps
from kingdom.cli.workflow.watch import exit_code, watch_frames
from kingdom.cli.workflow.ways import Ways, ways_of_workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from kingdom.cli.workflow.view import WorkflowView
    from kingdom.workflow.commands import SentCommand
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import WorkflowStore

_COMMAND_SECONDS: Final = 120.0  # for an engine to execute a command: it may have to stop agents first
_START_SECONDS: Final = 600.0  # for an engine to start a workflow: it may have to clone repositories first
_WEB_ENGINE_SECONDS: Final = 5.0  # for a web server to become the engine when no other process is
_POLL_SECONDS: Final = 0.5  # between two looks at other workflows
_ENGINE_CHECK_SECONDS: Final = 1.0  # between two looks whether an engine runs
_MAX_NAMED: Final = 5  # of other workflows
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command of :func:`kingdom.workflow.engine.command_handlers` for one workflow."""

    kind: str
    workflow_id: str
    arguments: dict[str, Any]
    word: str  # how a command names the workflow


AtRest: TypeAlias = "Callable[[WorkflowOverview, asyncio.Event], Awaitable[CommandRequest | None]]"
"""Shows a workflow that rests; returns the command with which it goes on, if it does. Ctrl-C sets the event."""


async def execute(context: WorkflowContext, request: CommandRequest) -> None:
    """Execute a command here, or have the engine execute it that runs on the store.

    If that engine goes away before it is done, the command is executed here.
    """
    from kingdom.workflow.commands import CommandPending, send_command, wait_for_command
    from kingdom.workflow.engine import EngineAlreadyRunning, EngineLease
    from kingdom.workflow.errors import HeldElsewhere

    lease, bus, sent = EngineLease(context.store), context.store.bus, None
    deadline = asyncio.get_running_loop().time() + _COMMAND_SECONDS
    while True:
        try:
            await lease.take()
            break
        except EngineAlreadyRunning:
            if sent is None:
                sent = await send_command(bus, request.kind, request.workflow_id, **request.arguments)
        try:
            await wait_for_command(bus, sent, _ENGINE_CHECK_SECONDS)
        except CommandPending:
            if asyncio.get_running_loop().time() >= deadline:
                raise
        else:
            return
    try:
        await _execute_here(context, request, sent)
    except HeldElsewhere:
        sent = await send_command(bus, request.kind, request.workflow_id, **request.arguments)
    else:
        return
    finally:
        await lease.release(at_once=True)
    await wait_for_command(bus, sent, _COMMAND_SECONDS)


async def _execute_here(context: WorkflowContext, request: CommandRequest, sent: SentCommand | None) -> None:
    """Execute a command while this process has the lease, and handle the events that follow from it."""
    from kingdom.workflow.commands import carry_out_left
    from kingdom.workflow.engine import command_handlers
    from kingdom.workflow.own_events import own_events_handled

    handlers = command_handlers(context)
    async with own_events_handled(context, has_lease=True):
        if sent is None:
            await handlers[request.kind](request.workflow_id, **request.arguments)
        else:
            await carry_out_left(context.store.bus, sent, handlers)


async def hand_over(place: WorkflowHome, store: WorkflowStore, request: CommandRequest) -> None:
    """Have the engine that runs on the store start a workflow, and do not watch it."""
    from kingdom.web.record import running_server

    loop = asyncio.get_running_loop()
    deadline = loop.time() + (0.0 if running_server(place.root.parent) is None else _WEB_ENGINE_SECONDS)
    while not await store.engine_running():
        if loop.time() >= deadline:
            raise output.CommandError(
                "NO_ENGINE",
                "no engine runs here: start one with kingdom workflow engine, or repeat the command without --detach",
            )
        await asyncio.sleep(_POLL_SECONDS)
    if not await _is_active(store, request):
        await _ask_engine(store, request, _START_SECONDS)


async def run_request(
    place: WorkflowHome,
    context: WorkflowContext,
    request: CommandRequest,
    view: WorkflowView,
    at_rest: AtRest | None = None,
) -> int:
    """Run a workflow and show it until it rests; return the exit code. The last lines say what one can do next.

    Another engine runs it if there is one. When that goes away, this process becomes the engine. With ``at_rest`` the
    caller shows the result and may go on. An engine of this process runs the workflows of others meanwhile.
    """
    from kingdom.workflow.engine import EngineAlreadyRunning

    after = await context.store.last_event_number(request.workflow_id)
    run = _Run(place, context, request, view, after, at_rest)
    while True:
        if not await context.store.engine_running():
            with contextlib.suppress(EngineAlreadyRunning):  # another process became the engine first
                code = await _run_here(run)
                if code is not None:
                    return code
                continue
        code = await _run_elsewhere(run)
        if code is not None:
            return code


async def _ask_engine(store: WorkflowStore, request: CommandRequest, seconds: float) -> None:
    from kingdom.workflow.commands import send_command, wait_for_command

    asked = await send_command(store.bus, request.kind, request.workflow_id, **request.arguments)
    await wait_for_command(store.bus, asked, seconds)


@dataclass(slots=True)
class _Run:
    """A workflow that is run and shown, here or by another engine."""

    place: WorkflowHome
    context: WorkflowContext
    request: CommandRequest
    view: WorkflowView
    after: int  # the number of the last event shown
    at_rest: AtRest | None = None  # None: say what one can do next
    shown: int | None = None  # the version of the workflow at its last rest that was shown
    sent: SentCommand | None = None  # the command, if it was sent to another engine

    @property
    def store(self) -> WorkflowStore:
        return self.context.store

    async def goes_on(self, overview: WorkflowOverview, stop: asyncio.Event) -> bool:
        """Show a workflow that rests, once; return whether it goes on, with another request."""
        if self.shown == overview.workflow.version:
            return False
        self.shown = overview.workflow.version
        if self.at_rest is None:
            await self._say_next_steps(overview)
        elif (following := await self.at_rest(overview, stop)) is not None:
            self.request, self.sent = following, None
            return True
        return False

    async def _say_next_steps(self, overview: WorkflowOverview) -> None:
        done = overview.workflow.status == "COMPLETED"
        ways = await ways_of_workflow(self.place, self.store, overview) if done else Ways()
        for line in next_steps(overview, ways):
            self.view.say(line)


async def _run_elsewhere(run: _Run) -> int | None:
    """Have the engine run the workflow that holds the store, and watch. Ctrl-C only stops watching.

    Return None if the workflow goes on: that engine has gone before it rests, or a person answered.
    """
    from kingdom.workflow.commands import send_command, wait_for_command

    request, bus = run.request, run.store.bus

    async def begin() -> None:
        if run.sent is None and not await _is_active(run.store, request):
            run.sent = await send_command(bus, request.kind, request.workflow_id, **request.arguments)
        if run.sent is not None:
            await wait_for_command(bus, run.sent, _START_SECONDS)

    started = asyncio.create_task(begin())
    gone = asyncio.create_task(_wait_until_engine_gone(run.store))
    try:
        overview = await _show_until_resting(run, started, gone=gone)
        left = gone.done() and not (started.done() and (overview is None or not overview.workflow.is_active))
    finally:
        await _cancel_and_wait(started)
        await _cancel_and_wait(gone)
    if left:
        stopped = "the engine has stopped: this process is the engine now, and Ctrl-C pauses the workflow"
        run.view.say(output.wrap(stopped))
        return None
    return await _end(run, overview)


async def _end(run: _Run, overview: WorkflowOverview | None) -> int | None:
    """Show the end of a workflow and return the exit code; None if it goes on."""
    if overview is None:  # it was deleted
        return 0
    with stop_signals() as stop:
        return None if await run.goes_on(overview, stop) else exit_code(overview)


async def _wait_until_engine_gone(store: WorkflowStore) -> None:
    while await store.engine_running():  # noqa: ASYNC110 - another process: there is no signal
        await asyncio.sleep(_ENGINE_CHECK_SECONDS)


async def _run_here(run: _Run) -> int | None:
    """Be the engine until the workflow rests, and those that others have started on it. Ctrl-C pauses the workflow.

    Return None if it goes on: a person answered what it asked meanwhile.
    """
    from kingdom.workflow.commands import wait_for_command
    from kingdom.workflow.engine import command_handlers, run_engine
    from kingdom.workflow.errors import WorkflowError
    from kingdom.workflow.overview import WorkflowOverview

    store = run.store
    await _pause_interrupted(run)
    carry = command_handlers(run.context)

    async def begin() -> None:
        request = run.request
        if active:
            return
        if run.sent is not None:  # this engine takes it from the bus
            await wait_for_command(store.bus, run.sent, _START_SECONDS)
        else:
            await carry[request.kind](request.workflow_id, **request.arguments)

    active = await _is_active(store, run.request, sent=run.sent is not None)
    with stop_signals() as stop:
        async with run_engine(run.context) as engine:
            broken = asyncio.create_task(engine.wait())
            try:
                while True:
                    overview = await _show_started(run, begin(), broken, stop)
                    if stop.is_set():
                        with contextlib.suppress(WorkflowError):  # it rests already, or never started
                            await carry["PauseWorkflow"](run.request.workflow_id)
                        word = run.request.word
                        resume, more = f"kingdom workflow resume {word}", f"kingdom workflow follow-up {word} TEXT"
                        run.view.say(output.step(f"paused: {resume}", "continues where it stopped"))
                        run.view.say(output.step(more, "continues with what you say"))
                        return output.INTERRUPTED
                    if overview is None or not await _unless_broken(run.goes_on(overview, stop), broken):
                        break
                    active = False
                await _wait_for_other_workflows(run, broken, stop)
            finally:
                await _cancel_and_wait(broken)
    if overview is not None:  # somebody may have gone on with it while this was the engine of others
        async with store.reading() as tx:
            workflow = await tx.workflows.find(run.request.workflow_id)
            overview = None if workflow is None else await WorkflowOverview.read(tx, workflow)
    return await _end(run, overview)


async def _show_started(
    run: _Run, start: Coroutine[Any, Any, None], broken: asyncio.Task[None], stop: asyncio.Event
) -> WorkflowOverview | None:
    started = asyncio.create_task(start)
    try:
        return await _show_until_resting(run, started, broken=broken, stop=stop)
    finally:
        await _cancel_and_wait(started)


async def _unless_broken(work: Coroutine[Any, Any, T], broken: asyncio.Task[None]) -> T:
    """Return what some work returns; if the engine breaks meanwhile, cancel it and raise the error."""
    working = asyncio.create_task(work)
    try:
        await asyncio.wait((working, broken), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            broken.result()
        return working.result()
    finally:
        await _cancel_and_wait(working)


async def _pause_interrupted(run: _Run) -> None:
    """Pause a workflow whose engine was killed, if there is something new to say to its agent: first it must rest.

    Where engines share the store, another one may run it.
    """
    request = run.request
    if request.kind != "FollowUpWorkflow" or run.sent is not None or run.store.holds is not None:
        return
    async with run.store.reading() as tx:
        interrupted = (await tx.workflows.get(request.workflow_id)).is_active
    if interrupted:
        await execute(run.context, CommandRequest("PauseWorkflow", request.workflow_id, {}, request.word))
        run.view.say("it was interrupted: its agent is stopped now, and goes on with what you say")


async def _show_until_resting(
    run: _Run,
    started: asyncio.Future[Any],
    *,
    broken: asyncio.Task[None] | None = None,
    gone: asyncio.Task[None] | None = None,
    stop: asyncio.Event | None = None,
) -> WorkflowOverview | None:
    """Show a workflow until it has started and rests, ``stop`` is set or ``gone`` has ended.

    Raises errors of the tasks.
    """
    overview = None
    stream = watch_frames(run.place, run.store, run.request.workflow_id, after=run.after)
    async with contextlib.aclosing(stream):
        with run.view:
            while stop is None or not stop.is_set():
                ready = started.done()  # checked before the frame is read, so that the frame shows what it did
                left = gone is not None and gone.done()
                frame = await anext(stream, None)
                if frame is None:  # it was deleted
                    break
                run.view.show(frame)
                run.after = frame.events[-1].sequence if frame.events else run.after
                overview = frame.overview
                for task in (started, broken, gone):
                    if task is not None and task.done():
                        task.result()
                if (ready and frame.resting) or left:
                    break
    return overview


async def _wait_for_other_workflows(run: _Run, broken: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Stay the engine until the workflows rest that other processes have started on it."""
    shown = False
    while not stop.is_set() and (active := await _active_workflows(run.store)):
        if not shown:
            shown = True
            names = ", ".join(workflow.name for workflow in active[:_MAX_NAMED])
            more = ", …" if len(active) > _MAX_NAMED else ""
            also = f"this engine also runs {names}{more}:"
            run.view.say(output.step(also, "Ctrl-C ends the wait and leaves it to the next engine"))
        if broken.done():
            broken.result()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await stop.wait()


async def _active_workflows(store: WorkflowStore) -> list[Workflow]:
    """Return the workflows that need the engine of this process."""
    from kingdom.workflow.domain.statuses import WORKFLOW_ACTIVE_STATUSES

    async with store.reading() as tx:
        active = await tx.workflows.with_status(*WORKFLOW_ACTIVE_STATUSES)
    if (holds := store.holds) is not None:  # others have engines of their own
        active = [workflow for workflow in active if holds.is_mine(workflow.id)]
    return active


async def _is_active(store: WorkflowStore, request: CommandRequest, *, sent: bool = False) -> bool:
    """Return whether the workflow runs already, or did when its engine was killed: then no command is needed.

    A request to go back or to do more is sent all the same, and refused with the reason; ``sent``: that was done
    already.
    """
    if (request.kind == "FollowUpWorkflow" or "checkpoint_id" in request.arguments) and not sent:
        return False
    async with store.reading() as tx:
        return (await tx.workflows.get(request.workflow_id)).is_active


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Return an event that Ctrl-C and SIGTERM set; a second signal ends the process as usual.

    After the block they do what they did before.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask() -> None:
        stop.set()
        undo()

    def undo() -> None:
        for number in before:
            loop.remove_signal_handler(number)

    for number in before:
        loop.add_signal_handler(number, ask)
    try:
        yield stop
    finally:
        undo()
        for number, handler in before.items():
            signal.signal(number, handler)


async def _cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end; its errors have been reported elsewhere."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
