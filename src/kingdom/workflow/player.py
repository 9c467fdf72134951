"""The engine ``workflow``: a task of a court is done by a workflow, and what becomes of it is the task's result.

A run makes the workflow of its task, or finds it again, sets it going and looks on until it rests:

============================  ========================================================================================
the workflow is               the result
============================  ========================================================================================
COMPLETED                     success, with its branches in the summary and its reports as links
PAUSED                        needs_human: the agent's question, a review, or why it cannot go on by itself
FAILED, CANCELLED             failed, with the reason
============================  ========================================================================================

An answer goes into the query of the task that waits for it, and the workflow goes on in place. So it does when the
general tries a failed task again. A run that is stopped pauses its workflow; a run whose process ends leaves it as it
is, and the next run of the task goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import Examined
from kingdom.agents.port import Began, Heartbeat
from kingdom.bus import BusError
from kingdom.gitops import GitError
from kingdom.workflow.commands import CommandRefused, NoAnswer, answer, ask
from kingdom.workflow.domain.errors import WorkflowError
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.playing.answering import give_answer
from kingdom.workflow.playing.commission import read_commission
from kingdom.workflow.playing.creating import find_or_create
from kingdom.workflow.playing.desk import Desks
from kingdom.workflow.playing.outcome import STOP, agents_question, failed, finished, look
from kingdom.workflow.playing.progress import Progress
from kingdom.workflow.playing.record import load_record
from kingdom.workflow.spending import Spending
from kingdom.workflow.store.transactions import STREAM
from kingdom.yamlfile import YamlProblem

if TYPE_CHECKING:
    from kingdom.agents.port import Finished, OnEvent, Order
    from kingdom.workflow.commands import Asked
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.playing.commission import Commission
    from kingdom.workflow.playing.desk import Desk

_STOPPED: Final = "stopped with its task: "
_POLL: Final = 1.0  # seconds between two looks when nothing wakes us
_HEARTBEAT: Final = 15.0  # seconds of silence after which a sign of life is given
_CARRIED: Final = 5.0  # seconds for which a command is waited for at a time
_RESTING: Final = (
    WorkflowStatus.COMPLETED,
    WorkflowStatus.PAUSED,
    WorkflowStatus.FAILED,
    WorkflowStatus.CANCELLED,
)
log = logging.getLogger("kingdom.workflow")


class WorkflowPlayer:
    """See :class:`kingdom.agents.engine.Player`. Its options are those of :mod:`.playing.commission`."""

    name = "workflow"

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._desks = Desks()

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Have a workflow done, and tell of it."""
        stopping = _Stopping()
        playing = asyncio.create_task(self._play(order, on_event, stopping), name=f"play {order.run_id}")
        try:
            await asyncio.wait([playing])  # nothing here can come between us and why we are cancelled
        except asyncio.CancelledError as error:
            stopping.reason = str(error.args[0]) if error.args and error.args[0] else None
            playing.cancel()
            await asyncio.wait([playing])
            raise
        return playing.result()

    async def _play(self, order: Order, on_event: OnEvent, stopping: _Stopping) -> Finished:
        commission = read_commission(order)
        desk = await self._desks.take(commission.home, commission.engines)
        hurry = False
        try:
            return await _Play(desk, await desk.parts(), commission, on_event, order.timers.silence).run(stopping)
        except asyncio.CancelledError:
            hurry = stopping.reason is None  # the process ends
            raise
        except (WorkflowError, YamlProblem, GitError, BusError) as error:
            return failed(str(error))
        finally:
            await desk.give_back(hurry=hurry)

    async def examine(self) -> Examined:
        """It is always there; what its works need is looked at when they begin."""
        return Examined(ok=True)


@dataclass(slots=True)
class _Stopping:
    """Why a run is cancelled; None: we only let go of it, and it goes on in the next process."""

    reason: str | None = None


class _Play:
    """One run."""

    def __init__(self, desk: Desk, parts: Parts, commission: Commission, tell: OnEvent, silence: float) -> None:
        self._desk = desk
        self._heartbeat = min(_HEARTBEAT, silence / 3)
        self._parts = parts
        self._commission = commission
        self._record = load_record(desk.home.root, commission.key)
        self._tell = tell
        self._woken = asyncio.Event()
        self._asked: Asked | None = None  # what the engine has not come to yet

    async def run(self, stopping: _Stopping) -> Finished:
        """See the workflow through to where it rests."""
        again = self._record.workflow_id is not None
        workflow_id = await find_or_create(self._parts, self._commission, self._record)
        self._tell(Began(workflow_id))
        spending = Spending(self._desk.home.ledger, workflow_id)
        progress = Progress(self._parts, workflow_id, spending, self._record, self._tell)
        if again:
            await progress.skip()
        unsubscribe = self._parts.store.bus.subscribe(STREAM, self._woken.set)
        try:
            await self._set_going(workflow_id)
            await self._watch(workflow_id, progress)
        except asyncio.CancelledError:
            if stopping.reason is not None:
                await self._halt(workflow_id, f"{_STOPPED}{stopping.reason}")
                progress.tell_usage()
                progress.charge()
            raise
        finally:
            unsubscribe()
        progress.charge()
        return finished(await look(self._parts, workflow_id))

    # ── setting going ─────────────────────────────────────────────────────────────────────────────────────────

    async def _set_going(self, workflow_id: str) -> None:
        """Start it, or have it go on, unless it runs or there is nothing to go on with."""
        picture = await look(self._parts, workflow_id)
        workflow, given = picture.workflow, self._commission.answer
        match workflow.status:
            case WorkflowStatus.CREATED | WorkflowStatus.READY:
                await self._ask(workflow_id, "StartWorkflow")
            case WorkflowStatus.FAILED if self._commission.retries:
                await self._ask(workflow_id, "ResumeWorkflow", retry=True)
            case WorkflowStatus.PAUSED if (workflow.reason or "").startswith(_STOPPED):
                await self._ask(workflow_id, "ResumeWorkflow", retry=True)
            case WorkflowStatus.PAUSED if given is not None and not await self._answered(workflow_id):
                if given.text.strip().lower() == STOP and agents_question(picture.works) is None:
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
        asking = asyncio.ensure_future(ask(self._parts.store.bus, kind, workflow_id, **arguments))
        try:
            self._asked = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._asked = await asking  # it may be on its way: whoever halts the workflow has to know
            raise
        await self._carried(self._asked)

    async def _carried(self, asked: Asked) -> None:
        while True:
            self._desk.check()
            try:
                await answer(self._parts.store.bus, asked, _CARRIED)
            except NoAnswer:
                self._tell(Heartbeat())
                continue
            except CommandRefused:
                status = await self._status(asked.workflow_id)
                if status in _RESTING or status is WorkflowStatus.CREATED:
                    raise  # else it was asked for before a crash, and has been done
            self._asked = None
            return

    # ── looking on ────────────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self, workflow_id: str, progress: Progress) -> None:
        """Tell what happens until it rests."""
        loop = asyncio.get_running_loop()
        spoken = loop.time()
        while True:
            self._woken.clear()
            self._desk.check()
            status = await self._status(workflow_id)  # before what happened: so nothing of it is left untold
            if await progress.tell():
                spoken = loop.time()
            if status in _RESTING:
                return
            if loop.time() - spoken >= self._heartbeat:
                self._tell(Heartbeat())
                spoken = loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL):
                    await self._woken.wait()

    async def _halt(self, workflow_id: str, reason: str) -> None:
        """Pause it: its agents are gone then. What was done stays, and it can go on."""
        try:
            if self._asked is not None:
                with contextlib.suppress(CommandRefused):
                    await self._carried(self._asked)
            status = await self._status(workflow_id)
            if status not in _RESTING and status is not WorkflowStatus.CREATED:
                await self._ask(workflow_id, "PauseWorkflow", reason=reason)
        except (WorkflowError, BusError) as error:
            log.warning("workflow %s could not be paused: %s", workflow_id, error)

    async def _status(self, workflow_id: str) -> WorkflowStatus:
        async with self._parts.store.reading() as tx:
            return (await tx.workflows.get(workflow_id)).status
