"""The engine ``workflow``: run a court's task as a workflow.

A run creates the workflow of its task, or finds it again, starts it, and follows it until it rests:

============================  ========================================================================================
status of the workflow        result of the run
============================  ========================================================================================
COMPLETED                     success, with its branches in the summary and its reports as links
PAUSED                        needs_human: the agent's question, a review, or why it cannot go on by itself
FAILED, CANCELLED             failed, with the reason
============================  ========================================================================================

An answer is added to the query of the task that waits for it, and the workflow resumes in place; so it does when the
general retries a failed task. Stopping a run pauses its workflow. A run whose process ends leaves the workflow as it
is, and the next run of the task goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import Examined
from kingdom.agents.engines import default_engines
from kingdom.agents.port import Began, Heartbeat
from kingdom.agents.sandbox.sandbox import Sandbox
from kingdom.base.yamlfile import YamlProblem
from kingdom.bus import BusError
from kingdom.gitops import GitError
from kingdom.gitops.settings import GitSettings
from kingdom.workflow.agent_records import WorkflowLedger
from kingdom.workflow.commands import CommandPending, CommandRefused, send_command, wait_for_command
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.domain.workflow import is_reopened
from kingdom.workflow.engine import EngineAlreadyRunning, run_engine
from kingdom.workflow.errors import WorkflowError
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.play_progress import (
    STOP,
    PlayProgress,
    agent_question,
    ended_result,
    failed_result,
    read_snapshot,
    workflow_result,
)
from kingdom.workflow.play_request import (
    find_or_create_workflow,
    give_answer,
    landed_workflow,
    load_play_record,
    read_request,
)
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.lifecycle import release_landed

if TYPE_CHECKING:
    from kingdom.agents.port import Finished, OnEvent, Order
    from kingdom.workflow.commands import SentCommand
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.play_request import PlayRequest

_ENGINE_RETRY_SECONDS: Final = 1.0  # between two tries to get the engine lock
_IDLE_CHECK_SECONDS: Final = 0.5  # between two checks whether workflows of other processes still run
_CLOSE_SECONDS: Final = 5.0  # how long the end of a run waits for the engine to close
_ACTIVE_STATUSES: Final = ("PREPARING", "RUNNING", "RESUMING")
_STOPPED_PREFIX: Final = "stopped with its task: "
_POLL_SECONDS: Final = 1.0  # between two looks at the workflow when nothing notifies us
_LANDING_TRIES_AWAITED: Final = 4  # of a remote that is away: a quarter of an hour
_HEARTBEAT_SECONDS: Final = 15.0  # of silence before a heartbeat is sent
_COMMAND_WAIT_SECONDS: Final = 5.0  # for a command, before a heartbeat is sent and the wait repeated
_RESTING_STATUSES: Final = (
    WorkflowStatus.COMPLETED,
    WorkflowStatus.PAUSED,
    WorkflowStatus.FAILED,
    WorkflowStatus.CANCELLED,
)
log = logging.getLogger("kingdom.workflow")


class PlayContext:
    """The workflow context of one home, shared by all runs of this process, with an engine whenever it can be had.

    One process at a time holds the engine lock of a home. The others send it commands, and take over when it is gone.
    So a run only sends commands and watches; which process carries them out does not matter.
    """

    def __init__(
        self,
        home: WorkflowHome,
        engines: Mapping[str, Mapping[str, Any]],
        sandbox: Sandbox,
        git: GitSettings,
        journal: Path | None,
    ) -> None:
        self.home = home
        self.users = 0
        self.closing = False
        self._engines = default_engines(engines)
        self._sandbox = sandbox
        self._git = git
        self._journal = journal
        self._unused = asyncio.Event()
        self._hurry = False
        self._workflows: asyncio.Future[WorkflowContext] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(), name=f"workflows of {home.root}")

    async def workflows(self) -> WorkflowContext:
        """Return the workflow context; raise the error that kept the home from being opened."""
        either: list[asyncio.Future[Any]] = [self._workflows, self.task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        return self._workflows.result()

    def check(self) -> None:
        """Raise the error that broke the engine, if any."""
        if self.task.done():
            self.task.result()

    def acquire(self) -> None:
        """Add a user."""
        self.users += 1
        self._unused.clear()

    async def release(self, *, hurry: bool) -> None:
        """Remove a user. After the last one, close: at once (``hurry``), or when no workflow runs any more."""
        self.users -= 1
        if self.users:
            return
        self._hurry = self._hurry or hurry
        self._unused.set()
        await asyncio.wait([self.task], timeout=None if hurry else _CLOSE_SECONDS)

    async def _run(self) -> None:
        try:
            opened = open_home(self.home, self._engines, sandbox=self._sandbox, git=self._git, journal=self._journal)
            async with opened as context:
                context.question_hours = None  # the court asks, and answers with the default itself
                self._workflows.set_result(context)
                while not self._unused.is_set():
                    try:
                        await self._run_engine(context)
                    except EngineAlreadyRunning:
                        await self._wait(_ENGINE_RETRY_SECONDS)
        finally:
            self.closing = True

    async def _run_engine(self, context: WorkflowContext) -> None:
        async with run_engine(context, patience=0) as engine:
            broken = asyncio.create_task(engine.wait())
            try:
                while not await self._may_close(context):
                    if broken.done():
                        broken.result()
                    await self._wait(_IDLE_CHECK_SECONDS)
                self.closing = True
            finally:
                broken.cancel()
                await asyncio.wait([broken])

    async def _may_close(self, context: WorkflowContext) -> bool:
        if not self._unused.is_set():
            return False
        idle = self._hurry or not await _has_active_workflow(context)
        return idle and self._unused.is_set()  # somebody may have acquired it meanwhile

    async def _wait(self, seconds: float) -> None:
        """Wait ``seconds``, or until nobody uses the context any more."""
        if self._unused.is_set():
            await asyncio.sleep(_IDLE_CHECK_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._unused.wait()


async def _has_active_workflow(context: WorkflowContext) -> bool:
    """Return whether a workflow runs: other processes may have started theirs on our engine."""
    async with context.store.reading() as tx:
        return bool(await tx.workflows.with_status(*_ACTIVE_STATUSES))


class PlayContexts:
    """The contexts of this process, by home."""

    def __init__(self) -> None:
        self._contexts: dict[Path, PlayContext] = {}
        self._lock = asyncio.Lock()

    async def acquire(self, request: PlayRequest) -> PlayContext:
        """Return the context of a request's home. The caller must release it."""
        home = WorkflowHome(request.home)
        async with self._lock:
            context = self._contexts.get(home.root)
            if context is not None and (context.closing or context.task.done()):
                await asyncio.wait([context.task])
                context = None
            if context is None:
                sandbox, git = Sandbox.read(request.sandbox), GitSettings.read(request.git)
                context = self._contexts[home.root] = PlayContext(home, request.engines, sandbox, git, request.journal)
            context.acquire()
            return context


class WorkflowPlayer:
    """Runs a task as a workflow; see :class:`kingdom.agents.engine.InProcessEngine`.

    Its options are those of :func:`kingdom.workflow.play_request.read_request`.
    """

    name = "workflow"

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._contexts = PlayContexts()

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Run the workflow of an order and report its events."""
        stop = _StopReason()
        running = asyncio.create_task(self._play(order, on_event, stop), name=f"play {order.run_id}")
        try:
            await asyncio.wait([running])  # no other await here: the reason of a cancellation must reach us
        except asyncio.CancelledError as error:
            stop.reason = str(error.args[0]) if error.args and error.args[0] else None
            running.cancel()
            await asyncio.wait([running])
            raise
        return running.result()

    async def _play(self, order: Order, on_event: OnEvent, stop: _StopReason) -> Finished:
        request = read_request(order)
        context = await self._contexts.acquire(request)
        hurry = False
        try:
            run = _WorkflowRun(context, await context.workflows(), request, on_event, order.timers.silence)
            return await run.run(stop)
        except asyncio.CancelledError:
            hurry = stop.reason is None  # the process ends
            raise
        except (WorkflowError, YamlProblem, GitError, BusError) as error:
            return failed_result(str(error))
        finally:
            await context.release(hurry=hurry)

    async def examine(self) -> Examined:
        """Report that the engine is available; what its works need is checked when they start."""
        return Examined(ok=True)


@dataclass(slots=True)
class _StopReason:
    """Why a run is cancelled. None: the process ends, and the next one goes on with the run."""

    reason: str | None = None


class _WorkflowRun:
    """One run."""

    def __init__(
        self, context: PlayContext, workflows: WorkflowContext, request: PlayRequest, on_event: OnEvent, silence: float
    ) -> None:
        self._context = context
        self._workflows = workflows
        self._request = request
        self._record = load_play_record(context.home.root, request.key)
        self._on_event = on_event
        self._heartbeat = min(_HEARTBEAT_SECONDS, silence / 3)
        self._woken = asyncio.Event()
        self._command: SentCommand | None = None  # sent and not carried out yet

    async def run(self, stop: _StopReason) -> Finished:
        """Follow the workflow until it rests."""
        if self._request.merged:
            return await self._end_landed()
        again = self._record.workflow_id is not None
        workflow_id = await find_or_create_workflow(self._workflows, self._request, self._record)
        self._on_event(Began(workflow_id))
        ledger = WorkflowLedger(self._context.home.ledger, workflow_id)
        progress = PlayProgress(self._workflows, workflow_id, ledger, self._record, self._on_event)
        if again or self._record.follow_up:
            await progress.skip()
        if self._record.follow_up and not again:  # what it cost so far was that of the task it is landed for
            ledger.read_on()
            progress.mark_charged()
        unsubscribe = self._workflows.store.bus.subscribe(STREAM, self._woken.set)
        try:
            await self._start_or_resume(workflow_id)
            await self._watch(workflow_id, progress)
        except asyncio.CancelledError:
            if stop.reason is not None:
                await self._pause(workflow_id, f"{_STOPPED_PREFIX}{stop.reason}")
                progress.emit_usage()
                progress.mark_charged()
            raise
        finally:
            unsubscribe()
        progress.mark_charged()
        return workflow_result(await read_snapshot(self._workflows, workflow_id))

    async def _end_landed(self) -> Finished:
        """Release the worktrees of a workflow whose pull request was merged or closed."""
        workflow_id = await landed_workflow(self._workflows, self._request)
        if workflow_id is None:
            return ended_result(
                "skipped", f"no workflow made {self._request.pull_request}: there is nothing to release"
            )
        self._on_event(Began(workflow_id))
        released = await release_landed(self._workflows, workflow_id)
        return ended_result("success", f"{self._request.pull_request} is done, worktrees released: {released}")

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _start_or_resume(self, workflow_id: str) -> None:
        """Start or resume the workflow, unless it runs or has nothing to go on with."""
        snapshot = await read_snapshot(self._workflows, workflow_id)
        workflow, answer = snapshot.workflow, self._request.answer
        match workflow.status:
            case WorkflowStatus.CREATED | WorkflowStatus.READY:
                await self._send(workflow_id, "StartWorkflow")
            case WorkflowStatus.FAILED if self._request.retries:
                await self._send(workflow_id, "ResumeWorkflow", retry=True)
            case WorkflowStatus.PAUSED if (workflow.reason or "").startswith(_STOPPED_PREFIX):
                await self._send(workflow_id, "ResumeWorkflow", retry=True)
            case WorkflowStatus.PAUSED if self._record.follow_up and is_reopened(workflow):
                await self._send(workflow_id, "ResumeWorkflow")
            case WorkflowStatus.PAUSED if answer is not None and not await self._answered(workflow_id):
                if answer.text.strip().lower() == STOP and agent_question(snapshot.works) is None:
                    await self._send(workflow_id, "CancelWorkflow")
                    return
                await give_answer(self._workflows, workflow_id, answer)
                await self._send(workflow_id, "ResumeWorkflow", retry=True)

    async def _answered(self, workflow_id: str) -> bool:
        """Return whether the workflow already resumed with this answer; if not, record that it is being given."""
        answer, record = self._request.answer, self._record
        assert answer is not None
        events = self._workflows.store.events
        if record.answered_by == answer.task_id:
            after = record.answered_after
            while page := await events(workflow_id, after, 500):
                if any(event.type == "WorkflowResumed" for event in page):
                    return True
                after = page[-1].sequence
            return False
        record.answered_by, after = answer.task_id, 0
        while page := await events(workflow_id, after, 500):
            after = page[-1].sequence
        record.answered_after = after
        record.save()
        return False

    async def _send(self, workflow_id: str, kind: str, **arguments: Any) -> None:
        """Send a command to the engine, in whatever process it runs, and wait until it is carried out."""
        sending = asyncio.ensure_future(send_command(self._workflows.store.bus, kind, workflow_id, **arguments))
        try:
            self._command = await asyncio.shield(sending)
        except asyncio.CancelledError:
            self._command = await sending  # it may be on its way: _pause has to know
            raise
        await self._wait_for(self._command)

    async def _wait_for(self, command: SentCommand) -> None:
        while True:
            self._context.check()
            try:
                await wait_for_command(self._workflows.store.bus, command, _COMMAND_WAIT_SECONDS)
            except CommandPending:
                self._on_event(Heartbeat())
                continue
            except CommandRefused:
                status = (await self._workflow(command.workflow_id)).status
                if status in _RESTING_STATUSES or status is WorkflowStatus.CREATED:
                    raise  # otherwise it was already sent and carried out before a crash
            self._command = None
            return

    async def _pause(self, workflow_id: str, reason: str) -> None:
        """Pause the workflow; its agents are stopped then. What was done stays, and it can be resumed."""
        try:
            if self._command is not None:
                with contextlib.suppress(CommandRefused):
                    await self._wait_for(self._command)
            status = (await self._workflow(workflow_id)).status
            if status not in _RESTING_STATUSES and status is not WorkflowStatus.CREATED:
                await self._send(workflow_id, "PauseWorkflow", reason=reason)
        except (WorkflowError, BusError) as error:
            log.warning("workflow %s could not be paused: %s", workflow_id, error)

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self, workflow_id: str, progress: PlayProgress) -> None:
        """Report events until the workflow rests."""
        loop = asyncio.get_running_loop()
        last_event = loop.time()
        while True:
            self._woken.clear()
            self._context.check()
            workflow = await self._workflow(workflow_id)  # before its events: so none of them is missed
            if await progress.emit():
                last_event = loop.time()
            if workflow.status in _RESTING_STATUSES and not _is_landing(workflow):
                return
            if loop.time() - last_event >= self._heartbeat:
                self._on_event(Heartbeat())
                last_event = loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._woken.wait()

    async def _workflow(self, workflow_id: str) -> Workflow:
        async with self._workflows.store.reading() as tx:
            return await tx.workflows.get(workflow_id)


def _is_landing(workflow: Workflow) -> bool:
    """Whether a workflow is being landed, or soon is: the result names its pull request then."""
    again = workflow.land_again
    return workflow.landing or (again is not None and again.tries <= _LANDING_TRIES_AWAITED)
