"""Run one task, from its preparation to its result.

::

    prepare → start a soldier → wait ─┬─ success, and the evidence is there ─────────→ TaskFinished
       ↑                              ├─ skipped, needs_human, killed from outside ──→ TaskFinished
       │                              ├─ rate limited, or something outside is away ─→ TaskParked
       └── new soldier, later ────────┴─ failed, timeout; after the last retry ──────→ TaskFinished
       └── new soldier, at once ──────── it died together with our former process

The progress file names the soldier before it starts, and its outcome before the next one starts. So the next process
continues a run that is interrupted anywhere: it takes over the running soldier or starts a new one. A task run neither
stores the result nor settles the task: the general does (:mod:`.general`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from kingdom.agents.errors import AgentsError, EngineNotInstalled, StartFailed
from kingdom.agents.port import Began, Outcome, Text, ToolUse
from kingdom.agents.untrusted import clean, clean_line, cut_middle
from kingdom.agents.verdict import REPORTED
from kingdom.base.backoff import backoff
from kingdom.base.files import write_atomic
from kingdom.bus import BusError
from kingdom.court.errors import CourtError
from kingdom.court.general.context import (
    TaskContext,
    TaskHistory,
    TaskProgress,
    has_ended,
    load_task_context,
    pull_request_of,
    without_follow_up,
)
from kingdom.court.general.errors import RepositoryUnknown, TaskHeld, TaskNotNeeded, TaskNotReady, TaskRefused
from kingdom.court.general.evidence import ClaimedSuccess, check_evidence, evidence_error
from kingdom.court.general.landing import LandedTask, OutageWait, land_result, landed_fields
from kingdom.court.general.preparation import (
    assigned_soldier,
    assignment_file,
    build_order,
    expired_timer_seconds,
    keep_raw_result,
    mcp_servers,
    new_soldier_id,
    prepare_handover,
    prepare_run,
    session_file,
)
from kingdom.court.general.replies import post_reply, start_showing
from kingdom.court.general.reports import ResultBuilder
from kingdom.court.general.review import post_review
from kingdom.gitops import GitError
from kingdom.journal.catalog import SoldierCompleted, SoldierEnded, SoldierSpawned, SoldierTimeout, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kingdom.agents.port import AgentEvent, Running
    from kingdom.bus import Delivery
    from kingdom.court.general.context import GeneralContext
    from kingdom.court.general.workspace import Workplace
    from kingdom.court.models import EvidenceCheck, Result, Task

T = TypeVar("T")
_MAX_ERROR_BYTES: Final = 4000  # of an error that the next soldier reads
_MAX_RESTARTS: Final = 20  # of a task whose soldiers die together with our process: it may be the cause
_DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
_STATUSES_WITH_RESULT: Final = ("success", "failed", "needs_human", "skipped")
_MAX_LAST_WORDS: Final = 300  # characters
_HOLD_SECONDS: Final = (30.0, 900.0)  # before an unknown outage is looked at again for the first time, and at most
_BACKOFF_SECONDS: Final = (5.0, 120.0)  # before the first retry, and at most
log = logging.getLogger("kingdom.court")


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """The task has a result."""

    result: Result


@dataclass(frozen=True, slots=True)
class TaskParked:
    """The engine is rate-limited, or something outside is away: the task continues later, and has spent no try."""

    resets_at: float | None
    reason: str
    code: Literal["RATE_LIMITED", "HELD"] = "RATE_LIMITED"


@dataclass(frozen=True, slots=True)
class TaskAbandoned:
    """The lease is lost: write nothing."""


TaskEnding = TaskFinished | TaskParked | TaskAbandoned
HaltCause = Literal["cancelled", "lost"]


def _no_result_error(outcome: Outcome) -> str:
    said = str((outcome.result or {}).get("summary") or "")
    words = f'; its last words were "{clean_line(said, _MAX_LAST_WORDS)}"' if said else ""
    return f"the soldier ended without the result file that its prompt asks for{words}"


class _Halted(Exception):
    """The task run is to end now."""


class TaskRun:
    """Runs one task, with as many soldiers in turn as it needs."""

    def __init__(self, context: GeneralContext, task: Task, delivery: Delivery, *, begun: bool = False) -> None:
        """Prepare to run a task. ``begun``: the journal has its start already."""
        self.task = task
        self.delivery = delivery
        self.soldier_id: str | None = None
        self.outage = OutageWait(context)
        self._context = context
        self._begun = begun
        self._progress = context.progress_store.load(task.id)
        self._task_context = TaskContext(task, TaskHistory(task.id))  # until it is loaded
        self._running: Running | None = None
        self._begun_shown: asyncio.Task[None] | None = None
        self._adopted = False
        self._place: Workplace | None = None
        # Whether a condition that held it back may still be there: until the model answers, nobody knows.
        self.still_held = self._progress is not None and self._progress.held is not None
        self._halt: HaltCause | None = None
        self._halted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ── from outside ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def retries(self) -> int:
        """How many runs have failed."""
        return self._progress.retries if self._progress else 0

    def cancel(self, reason: str) -> None:
        """End the task with the result ``cancelled``.

        The reason is saved first: after a crash the stopped soldier must not look as if something else had killed it.
        """
        if self._halt is None:
            progress = self._ensure_progress()
            progress.cancelled = progress.cancelled or reason
            self._context.progress_store.save(progress)
            self._request_halt("cancelled")

    def abandon(self) -> None:
        """End the run without a result, because the lease is lost."""
        self._request_halt("lost")

    async def run(self) -> TaskEnding:
        """Run until the task ends. Raises only errors that are not the task's: the bus, a full disk."""
        try:
            return await self._run()
        except _Halted:
            return self._halted_ending()
        except BusError:  # the queue cannot be reached: not the fault of the task
            raise
        except TaskNotNeeded as reason:
            return TaskFinished(await self._end_without_soldier(reason))
        except (CourtError, AgentsError, GitError) as error:
            return await self._fail(str(error))
        except OSError as error:
            if error.errno in _DISK_FULL_ERRNOS:
                raise  # the task waits until there is room; a running soldier keeps running
            return await self._fail(f"the task could not be prepared: {error}")
        except Exception as error:
            log.exception("%s: unexpected error in task %s", self._context.name, self.task.id)
            return await self._fail(f"unexpected: {type(error).__name__}: {error}")

    # ── the run ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> TaskEnding:
        progress = self._begin()
        self._running = await self._adopt(progress)
        self._task_context = await load_task_context(self._context.home, self._context.bus, self.task)
        if progress.follow_up_ended:
            self._task_context = without_follow_up(self._context.home, self._task_context)
        if progress.cancelled is not None:
            self._request_halt("cancelled")
        while True:
            if self._running is None:
                try:
                    self._running = await self._launch(progress)
                except (TaskHeld, EngineNotInstalled) as error:
                    progress.soldier = None
                    return await self._park(progress, None, str(error), "HELD")
                except (TaskNotReady, StartFailed) as error:
                    outcome = Outcome("failed", error=str(error))
                    if (ending := await self._handle_outcome(progress, outcome)) is not None:
                        return ending
                    continue
            outcome = await self._watch(self._running)
            self._running = None
            self._record_outcome(outcome)
            if self._halt is not None:
                return self._halted_ending(outcome)
            if (ending := await self._handle_outcome(progress, outcome)) is not None:
                return ending

    def _begin(self) -> TaskProgress:
        if self._progress is not None:
            return self._progress
        progress = self._ensure_progress()
        progress.soldier = assigned_soldier(self._context.home, self.task.id)  # if only the progress file was lost
        if not self._begun:
            self._begun = True
            self._context.emit(TaskStarted(self.task.id))
        return progress

    async def _adopt(self, progress: TaskProgress) -> Running | None:
        """Take over a soldier that a former process started."""
        if progress.soldier is None:
            return None
        self.soldier_id = progress.soldier
        self._adopted = True
        return await self._context.agents.adopt(progress.soldier, self._on_agent_event)

    async def _launch(self, progress: TaskProgress) -> Running:
        """Prepare a run and start a new soldier."""
        context = self._context
        opened = self._task_context.follow_up
        if progress.follow_up_ended is None and opened is not None:
            progress.follow_up_ended = await self._unless_halted(has_ended(context, self._task_context, opened))
            if progress.follow_up_ended:
                self._task_context = without_follow_up(context.home, self._task_context)
        prepared = await self._unless_halted(prepare_run(context, self._task_context, progress))
        self._place = prepared.place
        without = prepared.permit is not None and not prepared.permit.mcp
        servers = {} if without else mcp_servers(context.manifest, context.deps.environment)
        section = context.system.machine
        soldier_id = new_soldier_id(context.clock(), None if section is None else section.name)
        self._adopted = False
        progress.soldier = self.soldier_id = soldier_id
        prepare_handover(context.home, self.task.id)
        await context.writer.write(
            (context.home.prompt(self.task.id), prepared.prompt),
            context.progress_store.file(progress),
            assignment_file(context.home, self.task.id, soldier_id),
        )
        order = build_order(
            self.task,
            context.manifest,
            context.system,
            context.home,
            soldier_id=soldier_id,
            prompt=prepared.prompt,
            folder=prepared.place.folder,
            session_id=prepared.session_id,
            options=prepared.options,
            permit=prepared.permit,
            environment=context.deps.environment,
            mcp_config=context.mcp.write(soldier_id, servers),
        )
        try:
            running = await context.agents.start(order, self._on_agent_event)
        except AgentsError:
            context.mcp.remove(soldier_id)
            raise
        context.emit(SoldierSpawned(self.task.id, soldier_id))
        if not progress.retries:
            self._begun_shown = start_showing(context, self._task_context)
        if progress.held_code == "HELD":
            self.still_held = False
        return running

    async def _watch(self, running: Running) -> Outcome:
        """Wait for the end of a soldier; stop it on a halt."""
        waiting = asyncio.ensure_future(running.wait())
        try:
            await self._wait_or_halt(waiting)
            if self._halt is not None and not waiting.done():
                await running.stop(self._halt_reason())
            await waiting
            self._context.mcp.remove(running.run_id)
            return waiting.result()
        finally:
            waiting.cancel()

    async def _handle_outcome(self, progress: TaskProgress, outcome: Outcome) -> TaskEnding | None:
        """Return the ending that follows from an outcome, or None for another try."""
        if self._died_with_us(progress, outcome):
            progress.restarts += 1
            await self._save_outcome(progress, outcome)
            return None
        checks: list[EvidenceCheck] = []
        status, error = outcome.status, outcome.error
        if status == "rate_limited":
            progress.soldier = None
            progress.charge(outcome)
            return await self._park(progress, outcome.resets_at, error or "the engine's limit is reached")
        progress.held = progress.held_code = progress.held_until = None
        progress.holds = 0
        if status == "success" and outcome.result is not None and outcome.result.get(REPORTED) is False:
            status, error = "failed", _no_result_error(outcome)
        if status == "success":
            checks = await self._unless_halted(self._evidence(outcome)) if self._context.manifest.evidence else []
            if (error := evidence_error(checks)) is not None:
                status = "failed"
        if status not in ("failed", "timeout") or progress.retries >= self._context.manifest.retries:
            result = self._result_builder(outcome).of(status, error, checks)
            return TaskFinished(await self._unless_halted(self._land(result, outcome)))
        progress.retries += 1
        reason = error or f"the soldier ended as {status} and gave no reason"
        progress.errors.append(cut_middle(clean(reason), _MAX_ERROR_BYTES))
        await self._save_outcome(progress, outcome)
        await self._unless_halted(self._context.deps.sleep(backoff(progress.retries - 1, *_BACKOFF_SECONDS)))
        return None

    async def _end_without_soldier(self, reason: TaskNotNeeded) -> Result:
        """Return the result of a task that needs no soldier."""
        if isinstance(reason, RepositoryUnknown):
            return self._result_builder().asks_repository(reason)
        text, opened = str(reason), reason.counts
        document = {"status": reason.status, "summary": text if reason.status == "skipped" else "", "error": text}
        result = self._result_builder(Outcome(reason.status, document)).of(reason.status, text, [])
        if opened is not None:
            landed = LandedTask(opened.branch, 0, opened.url)
            result = result.model_copy(update=landed_fields(landed, self._task_context, result.links))
        skipped = reason.status == "skipped"  # people see there what it says
        return result if skipped else await post_reply(self._context, self._task_context, result, document)

    async def _land(self, result: Result, outcome: Outcome) -> Result:
        context, task_context, plan = self._context, self._task_context, self._context.manifest.land
        if plan is not None and plan.how == "review":
            result = await post_review(context, task_context, self._place, result, outcome.result or {}, self.outage)
        else:
            result = await land_result(context, task_context, self._place, result, self.outage)
        if self._begun_shown is not None:
            await asyncio.wait([self._begun_shown])  # a reply comes after it
        return await post_reply(context, task_context, result, outcome.result or {})

    async def _park(
        self,
        progress: TaskProgress,
        resets_at: float | None,
        reason: str,
        code: Literal["RATE_LIMITED", "HELD"] = "RATE_LIMITED",
    ) -> TaskParked:
        """Note why the task waits, so that people are told and a later process knows."""
        if resets_at is None:  # nobody knows when it passes: look again, less and less often
            resets_at = self._context.clock() + backoff(progress.holds, *_HOLD_SECONDS)
        progress.held, progress.held_until = clean_line(reason, _MAX_ERROR_BYTES), resets_at
        progress.held_code = code
        progress.holds += 1
        await self._context.writer.write(self._context.progress_store.file(progress))
        return TaskParked(resets_at, reason, code)

    async def _save_outcome(self, progress: TaskProgress, outcome: Outcome) -> None:
        """Save the outcome of a run before the next one starts."""
        progress.soldier = None
        progress.charge(outcome)
        await self._context.writer.write(self._context.progress_store.file(progress))

    def _died_with_us(self, progress: TaskProgress, outcome: Outcome) -> bool:
        """Whether an adopted soldier died with our former process (a reboot, an in-process engine)."""
        unseen = self._adopted and outcome.status == "killed" and outcome.exit_code is None
        return unseen and progress.restarts < _MAX_RESTARTS

    async def _evidence(self, outcome: Outcome) -> list[EvidenceCheck]:
        # An adopted run was prepared by a former process.
        place = self._place or self._context.workspace.find(self._task_context.history.work_id)
        if place is None:
            raise TaskRefused("the workplace of the task is gone, so its evidence cannot be checked")
        context = self._context
        pull = await pull_request_of(context, self._task_context, place, fetch=False)
        claim = ClaimedSuccess(outcome.result or {}, place, pull)
        return await check_evidence(context.manifest.evidence, claim, context.deps.environment, context.deps.sandbox)

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────

    def _on_agent_event(self, event: AgentEvent) -> None:
        if isinstance(event, (Text, ToolUse)):
            self.still_held = False
        if isinstance(event, Began) and event.session_id:
            with contextlib.suppress(OSError):  # written again with the result
                write_atomic(*session_file(self._context.home, self.task.id, event.session_id), durable=False)

    def _record_outcome(self, outcome: Outcome) -> None:
        """Keep the raw result of a run, and write its end to the journal."""
        with contextlib.suppress(OSError):  # the raw result is only for people to look at
            keep_raw_result(self._context.home, self.task.id, outcome)
        soldier_id = self.soldier_id or ""
        if outcome.status == "timeout":
            allowed = expired_timer_seconds(self._context.manifest, outcome)
            self._context.emit(SoldierTimeout(self.task.id, soldier_id, allowed))
        elif outcome.status in _STATUSES_WITH_RESULT and (outcome.result or {REPORTED: False}).get(REPORTED, True):
            self._context.emit(SoldierCompleted(self.task.id, soldier_id, outcome.status))
        else:
            status = "cancelled" if self._halt == "cancelled" else outcome.status
            self._context.emit(SoldierEnded(self.task.id, soldier_id, status))

    async def _unless_halted(self, work: Awaitable[T]) -> T:
        """Await something; on a halt cancel it and raise :class:`_Halted`."""
        future = asyncio.ensure_future(work)
        try:
            await self._wait_or_halt(future)
            if self._halt is None:
                return future.result()
            raise _Halted
        finally:
            if future.cancel():
                await asyncio.wait([future])

    async def _wait_or_halt(self, future: asyncio.Future[Any]) -> None:
        await asyncio.wait([future, self._halted], return_when=asyncio.FIRST_COMPLETED)

    def _request_halt(self, halt: HaltCause) -> None:
        self._halt = self._halt or halt
        if not self._halted.done():
            self._halted.set_result(None)

    def _halt_reason(self) -> str:
        progress = self._progress
        return (progress.cancelled if progress else None) or "the lease of the task is lost"

    def _halted_ending(self, outcome: Outcome | None = None) -> TaskEnding:
        progress = self._ensure_progress()
        if self._halt == "lost":
            progress.soldier = None
            self._context.progress_store.save(progress)
            return TaskAbandoned()
        return TaskFinished(self._result_builder(outcome).cancelled(self._halt_reason()))

    def _ensure_progress(self) -> TaskProgress:
        if self._progress is None:
            self._progress = TaskProgress(self.task.id, self._context.clock())
        return self._progress

    async def _fail(self, error: str) -> TaskEnding:
        """Stop the soldier and end the task as failed."""
        if self._running is not None:
            await self._running.stop(error)
            await self._running.wait()
            self._context.mcp.remove(self._running.run_id)
        return TaskFinished(self._result_builder().failure(error))

    def _result_builder(self, outcome: Outcome | None = None) -> ResultBuilder:
        return ResultBuilder(self._context, self._task_context, self._ensure_progress(), outcome, self.soldier_id)
