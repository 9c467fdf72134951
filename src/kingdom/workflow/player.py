"""The engine `workflow`: run a court's task as a workflow."""

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
from kingdom.base.yamlfile import YamlProblem
from kingdom.bus import BusError
from kingdom.gitops import GitError
from kingdom.workflow.agent_records import WorkflowLedger
from kingdom.workflow.commands import CommandPending, CommandRefused, send_command, wait_for_command
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.engine import EngineAlreadyRunning, run_engine
from kingdom.workflow.errors import WorkflowError
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.play_progress import (
    STOP,
    PlayProgress,
    agent_question,
    failed_result,
    read_snapshot,
    workflow_result,
)
from kingdom.workflow.play_request import find_or_create_workflow, give_answer, load_play_record, read_request
from kingdom.workflow.store.transactions import STREAM

if TYPE_CHECKING:
    from kingdom.agents.port import Finished, OnEvent, Order
    from kingdom.workflow.commands import SentCommand
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.play_request import PlayRequest


# What a task of a court needs to be done by a workflow; :mod:`kingdom.workflow.player` puts it together.


# One engine for all tasks of a process that are done by workflows of one home.
#
# An engine runs wherever it can be had: one process has it, the others ask it for what they want and take its place when
# it is gone. So every task only asks, and looks on; who carries it out does not matter.


_ENGINE_RETRY_SECONDS: Final = 1.0  # seconds between two tries to get the engine
_IDLE_CHECK_SECONDS: Final = 0.5  # seconds between two looks at what others have given our engine to do
_CLOSE_SECONDS: Final = 5.0  # seconds that the end of a task waits for the engine to be given back
_ACTIVE_STATUSES: Final = ("PREPARING", "RUNNING", "RESUMING")


class PlayContext:
    """The parts of a home, with an engine whenever it can be had, for as long as somebody uses them."""

    def __init__(self, home: WorkflowHome, engines: Mapping[str, Mapping[str, Any]]) -> None:
        self.home = home
        self.users = 0
        self.closing = False
        self._engines = default_engines(engines)
        self._leave = asyncio.Event()
        self._hurry = False
        self._parts: asyncio.Future[WorkflowContext] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(), name=f"workflows of {home.root}")

    async def parts(self) -> WorkflowContext:
        """What use cases work with; raises what kept the home from being opened."""
        either: list[asyncio.Future[Any]] = [self._parts, self.task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        return self._parts.result()

    def check(self) -> None:
        """Raise what broke the engine."""
        if self.task.done():
            self.task.result()

    def take(self) -> None:
        """One more uses it."""
        self.users += 1
        self._leave.clear()

    async def give_back(self, *, hurry: bool) -> None:
        """One less uses it. After the last it is closed: at once (``hurry``), or when no workflow runs any more."""
        self.users -= 1
        if self.users:
            return
        self._hurry = self._hurry or hurry
        self._leave.set()
        await asyncio.wait([self.task], timeout=None if hurry else _CLOSE_SECONDS)

    async def _run(self) -> None:
        try:
            async with open_home(self.home, self._engines) as parts:
                self._parts.set_result(parts)
                while not self._leave.is_set():
                    try:
                        await self._serve(parts)
                    except EngineAlreadyRunning:
                        await self._left(_ENGINE_RETRY_SECONDS)
        finally:
            self.closing = True

    async def _serve(self, parts: WorkflowContext) -> None:
        async with run_engine(parts, patience=0) as engine:
            broken = asyncio.create_task(engine.wait())
            try:
                while not await self._may_close(parts):
                    if broken.done():
                        broken.result()
                    await self._left(_IDLE_CHECK_SECONDS)
                self.closing = True
            finally:
                broken.cancel()
                await asyncio.wait([broken])

    async def _may_close(self, parts: WorkflowContext) -> bool:
        if not self._leave.is_set():
            return False
        free = self._hurry or not await _busy(parts)
        return free and self._leave.is_set()  # somebody may have come meanwhile

    async def _left(self, seconds: float) -> None:
        """Wait so long, or until nobody uses it any more."""
        if self._leave.is_set():
            await asyncio.sleep(_IDLE_CHECK_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leave.wait()


async def _busy(parts: WorkflowContext) -> bool:
    """Whether a workflow runs: others may have given theirs to our engine."""
    async with parts.store.reading() as tx:
        return bool(await tx.workflows.with_status(*_ACTIVE_STATUSES))


class PlayContexts:
    """The desks of a process, by home."""

    def __init__(self) -> None:
        self._desks: dict[Path, PlayContext] = {}
        self._lock = asyncio.Lock()

    async def take(self, home: Path, engines: Mapping[str, Mapping[str, Any]]) -> PlayContext:
        """The desk of a home. Whoever takes it gives it back."""
        place = WorkflowHome(home)
        async with self._lock:
            desk = self._desks.get(place.root)
            if desk is not None and (desk.closing or desk.task.done()):
                await asyncio.wait([desk.task])
                desk = None
            if desk is None:
                desk = self._desks[place.root] = PlayContext(place, engines)
            desk.take()
            return desk


# The engine ``workflow``: a task of a court is done by a workflow, and what becomes of it is the task's result.
#
# A run makes the workflow of its task, or finds it again, sets it going and looks on until it rests:
#
# ============================  ========================================================================================
# the workflow is               the result
# ============================  ========================================================================================
# COMPLETED                     success, with its branches in the summary and its reports as links
# PAUSED                        needs_human: the agent's question, a review, or why it cannot go on by itself
# FAILED, CANCELLED             failed, with the reason
# ============================  ========================================================================================
#
# An answer goes into the query of the task that waits for it, and the workflow goes on in place. So it does when the
# general tries a failed task again. A run that is stopped pauses its workflow; a run whose process ends leaves it as it
# is, and the next run of the task goes on with it.


_STOPPED_PREFIX: Final = "stopped with its task: "
_POLL_SECONDS: Final = 1.0  # seconds between two looks when nothing wakes us
_HEARTBEAT_SECONDS: Final = 15.0  # seconds of silence after which a sign of life is given
_COMMAND_WAIT_SECONDS: Final = 5.0  # seconds for which a command is waited for at a time
_RESTING_STATUSES: Final = (
    WorkflowStatus.COMPLETED,
    WorkflowStatus.PAUSED,
    WorkflowStatus.FAILED,
    WorkflowStatus.CANCELLED,
)
log = logging.getLogger("kingdom.workflow")


class WorkflowPlayer:
    """See :class:`kingdom.agents.engine.InProcessEngine`. Its options are those of :mod:`.playing.commission`."""

    name = "workflow"

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._desks = PlayContexts()

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Have a workflow done, and tell of it."""
        stopping = _StopReason()
        playing = asyncio.create_task(self._play(order, on_event, stopping), name=f"play {order.run_id}")
        try:
            await asyncio.wait([playing])  # nothing here can come between us and why we are cancelled
        except asyncio.CancelledError as error:
            stopping.reason = str(error.args[0]) if error.args and error.args[0] else None
            playing.cancel()
            await asyncio.wait([playing])
            raise
        return playing.result()

    async def _play(self, order: Order, on_event: OnEvent, stopping: _StopReason) -> Finished:
        commission = read_request(order)
        desk = await self._desks.take(commission.home, commission.engines)
        hurry = False
        try:
            return await _WorkflowRun(desk, await desk.parts(), commission, on_event, order.timers.silence).run(
                stopping
            )
        except asyncio.CancelledError:
            hurry = stopping.reason is None  # the process ends
            raise
        except (WorkflowError, YamlProblem, GitError, BusError) as error:
            return failed_result(str(error))
        finally:
            await desk.give_back(hurry=hurry)

    async def examine(self) -> Examined:
        """It is always there; what its works need is looked at when they begin."""
        return Examined(ok=True)


@dataclass(slots=True)
class _StopReason:
    """Why a run is cancelled; None: we only let go of it, and it goes on in the next process."""

    reason: str | None = None


class _WorkflowRun:
    """One run."""

    def __init__(
        self, desk: PlayContext, parts: WorkflowContext, commission: PlayRequest, tell: OnEvent, silence: float
    ) -> None:
        self._desk = desk
        self._heartbeat = min(_HEARTBEAT_SECONDS, silence / 3)
        self._parts = parts
        self._commission = commission
        self._record = load_play_record(desk.home.root, commission.key)
        self._tell = tell
        self._woken = asyncio.Event()
        self._asked: SentCommand | None = None  # what the engine has not come to yet

    async def run(self, stopping: _StopReason) -> Finished:
        """See the workflow through to where it rests."""
        again = self._record.workflow_id is not None
        workflow_id = await find_or_create_workflow(self._parts, self._commission, self._record)
        self._tell(Began(workflow_id))
        spending = WorkflowLedger(self._desk.home.ledger, workflow_id)
        progress = PlayProgress(self._parts, workflow_id, spending, self._record, self._tell)
        if again:
            await progress.skip()
        unsubscribe = self._parts.store.bus.subscribe(STREAM, self._woken.set)
        try:
            await self._set_going(workflow_id)
            await self._watch(workflow_id, progress)
        except asyncio.CancelledError:
            if stopping.reason is not None:
                await self._halt(workflow_id, f"{_STOPPED_PREFIX}{stopping.reason}")
                progress.emit_usage()
                progress.charge()
            raise
        finally:
            unsubscribe()
        progress.charge()
        return workflow_result(await read_snapshot(self._parts, workflow_id))

    # ── setting going ─────────────────────────────────────────────────────────────────────────────────────────

    async def _set_going(self, workflow_id: str) -> None:
        """Start it, or have it go on, unless it runs or there is nothing to go on with."""
        picture = await read_snapshot(self._parts, workflow_id)
        workflow, given = picture.workflow, self._commission.answer
        match workflow.status:
            case WorkflowStatus.CREATED | WorkflowStatus.READY:
                await self._ask(workflow_id, "StartWorkflow")
            case WorkflowStatus.FAILED if self._commission.retries:
                await self._ask(workflow_id, "ResumeWorkflow", retry=True)
            case WorkflowStatus.PAUSED if (workflow.reason or "").startswith(_STOPPED_PREFIX):
                await self._ask(workflow_id, "ResumeWorkflow", retry=True)
            case WorkflowStatus.PAUSED if given is not None and not await self._answered(workflow_id):
                if given.text.strip().lower() == STOP and agent_question(picture.works) is None:
                    await self._ask(workflow_id, "CancelWorkflow")
                    return
                await give_answer(self._parts, workflow_id, given)
                await self._ask(workflow_id, "ResumeWorkflow", retry=True)

    async def _answered(self, workflow_id: str) -> bool:
        """Whether the workflow went on with this answer already, and rests again; notes that it is being given."""
        given, record = self._commission.answer, self._record
        assert given is not None
        events = self._parts.store.events
        if record.answered_by == given.task_id:
            after = record.answered_after
            while page := await events(workflow_id, after, 500):
                if any(event.type == "WorkflowResumed" for event in page):
                    return True
                after = page[-1].sequence
            return False
        record.answered_by, after = given.task_id, 0
        while page := await events(workflow_id, after, 500):
            after = page[-1].sequence
        record.answered_after = after
        record.save()
        return False

    async def _ask(self, workflow_id: str, kind: str, **arguments: Any) -> None:
        """Have the engine do something, whoever runs it, and wait until it has."""
        asking = asyncio.ensure_future(send_command(self._parts.store.bus, kind, workflow_id, **arguments))
        try:
            self._asked = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._asked = await asking  # it may be on its way: whoever halts the workflow has to know
            raise
        await self._carried(self._asked)

    async def _carried(self, asked: SentCommand) -> None:
        while True:
            self._desk.check()
            try:
                await wait_for_command(self._parts.store.bus, asked, _COMMAND_WAIT_SECONDS)
            except CommandPending:
                self._tell(Heartbeat())
                continue
            except CommandRefused:
                status = await self._status(asked.workflow_id)
                if status in _RESTING_STATUSES or status is WorkflowStatus.CREATED:
                    raise  # else it was asked for before a crash, and has been done
            self._asked = None
            return

    # ── looking on ────────────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self, workflow_id: str, progress: PlayProgress) -> None:
        """Tell what happens until it rests."""
        loop = asyncio.get_running_loop()
        spoken = loop.time()
        while True:
            self._woken.clear()
            self._desk.check()
            status = await self._status(workflow_id)  # before what happened: so nothing of it is left untold
            if await progress.tell():
                spoken = loop.time()
            if status in _RESTING_STATUSES:
                return
            if loop.time() - spoken >= self._heartbeat:
                self._tell(Heartbeat())
                spoken = loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._woken.wait()

    async def _halt(self, workflow_id: str, reason: str) -> None:
        """Pause it: its agents are gone then. What was done stays, and it can go on."""
        try:
            if self._asked is not None:
                with contextlib.suppress(CommandRefused):
                    await self._carried(self._asked)
            status = await self._status(workflow_id)
            if status not in _RESTING_STATUSES and status is not WorkflowStatus.CREATED:
                await self._ask(workflow_id, "PauseWorkflow", reason=reason)
        except (WorkflowError, BusError) as error:
            log.warning("workflow %s could not be paused: %s", workflow_id, error)

    async def _status(self, workflow_id: str) -> WorkflowStatus:
        async with self._parts.store.reading() as tx:
            return (await tx.workflows.get(workflow_id)).status
