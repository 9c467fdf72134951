"""The general's role: claim tasks, run them, store results and settle."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.cancellations import (
    DEFAULT_REASON,
    cancel_requests,
    drop_request,
    request_cancel,
)
from kingdom.court.errors import CourtError, InvalidDocument, InvalidId
from kingdom.court.general.context import (
    GeneralContext,
    GeneralDeps,
    HeldTask,
    TaskContext,
    TaskHistory,
    TaskProgress,
    load_task_context,
)
from kingdom.court.general.machine import SharedMachine
from kingdom.court.general.posting import keep_reply
from kingdom.court.general.replies import stopped_reply
from kingdom.court.general.reports import (
    ResultBuilder,
    outcome_of,
    parking_seconds,
    recently_started,
    remove_old_workplaces,
    store_results,
    stored_result,
)
from kingdom.court.general.task_run import TaskAbandoned, TaskFinished, TaskRun
from kingdom.court.loop import remove_stale_temporaries
from kingdom.court.machines.exchange import machine_of
from kingdom.court.machines.wakes import TaskWakes
from kingdom.court.models import Result, Task, timestamp
from kingdom.court.packages.disabled import DisabledGenerals
from kingdom.court.queues import TASKS, parse_document

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from kingdom.agents.port import Agents
    from kingdom.bus import Delivery
    from kingdom.court.config import SystemConfig
    from kingdom.court.general.task_run import TaskEnding, TaskParked
    from kingdom.court.loop import Services
    from kingdom.court.packages.installed import GeneralPackage

CANCEL_TYPE: Final = "cancel"  # of tasks that former versions used to end another
LEASE_SECONDS: Final = 60.0
RENEWAL_SECONDS: Final = 20.0
_CLEANUP_INTERVAL_SECONDS: Final = 3600.0
_PEEK_LIMIT: Final = 200
_UNLIMITED_ATTEMPTS: Final = 1_000_000  # a task ends with its result, never after a number of leases
log = logging.getLogger("kingdom.court")


@dataclass(slots=True)
class _HeldTask:
    task: Task
    delivery: Delivery
    task_run: TaskRun | None = None  # None for a task that only has to be settled
    run: asyncio.Task[TaskEnding] | None = None
    result: Result | None = None
    parked: TaskParked | None = None
    stored: bool = False  # the result is on disk, in the journal and in the log
    lost: bool = False  # the lease is

    @property
    def is_busy(self) -> bool:
        """Whether the task counts against the concurrency of the general. One that waits for its remote does not."""
        return self.task_run is not None and self.task_run.outage.held is None


class General:
    """One general. It is a :class:`~kingdom.court.loop.Role` under its own name."""

    interval = 10.0

    def __init__(
        self,
        services: Services,
        package: GeneralPackage,
        system: SystemConfig,
        agents: Agents,
        deps: GeneralDeps | None = None,
    ) -> None:
        self.name = package.manifest.name
        self._context = GeneralContext(services, package, system, agents, deps or GeneralDeps())
        self._bus = services.bus
        self._held: dict[str, _HeldTask] = {}
        self._renewed = self._context.deps.monotonic()
        self._last_cleanup: float | None = None
        self._cleanup: asyncio.Task[list[str]] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._finished: dict[str, int] = {}
        self._waiting = 0
        self._disabled = DisabledGenerals(services.home)
        self._machine = SharedMachine(self._context)
        self._wakes = TaskWakes(services.home, services.bus, self.name, self._wake)
        self._parked: dict[str, HeldTask] = {}  # tasks that wait for a condition outside

    # ── the role ──────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Recall the tasks that a former process held, and continue them."""
        await self._context.workspace.prune()
        remove_stale_temporaries(self._context.home.general_memory(self.name))
        self._context.replies.sweep()
        self._renewed = self._context.deps.monotonic()
        recalled = await self._bus.recall(TASKS, worker=self._machine.worker, lease=LEASE_SECONDS)
        self._machine.watch_leases(LEASE_SECONDS, self._abandon_all)
        begun = recently_started(self._context.home, self._context.clock()) if recalled else set()
        await self._accept(recalled, begun)
        await self._remove_stale_progress()
        self._context.mcp.sweep(self._context.progress_store.soldiers())
        self._start_runs()

    async def tick(self) -> float | None:
        """Renew leases, settle ended tasks, claim waiting ones."""
        if self._machine.removed:
            self._abandon_all()
        self._wakes.check()
        await self._renew_leases()
        await self._settle(await self._collect_ended())
        more = await self._claim_waiting()
        await self._cancel()
        self._start_runs()
        self._context.replies.start_due(self._context.start_aside)
        self._start_cleanup()
        return 0.0 if more else None

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when a task or a request to cancel one arrives, or when a run ends."""
        self._wake = wake
        self._wakes = TaskWakes(self._context.home, self._bus, self.name, wake)
        self._wakes.open()
        return self._wakes.close

    def report(self) -> Mapping[str, Any]:
        return {
            "engine": self._context.manifest.engine.name,
            "concurrency": self._context.manifest.concurrency,
            "waiting": self._waiting,
            "running": [
                {"task_id": held.task.id, "soldier_id": task_run.soldier_id, "retries": task_run.retries}
                for held in self._held.values()
                if (task_run := held.task_run) is not None
            ],
            "finished": dict(self._finished),
            "held": {
                task_id: {"reason": one.reason, "until": timestamp(one.until)}
                for task_id, one in sorted(self._waiting_outside().items())
            },
        }

    def _waiting_outside(self) -> dict[str, HeldTask]:
        """Return the tasks that wait for a condition outside: before their soldier starts, or to be landed."""
        found = {
            task_id: one
            for task_id, one in self._parked.items()
            if (held := self._held.get(task_id)) is None or (held.task_run and held.task_run.still_held)
        }
        for task_id, held in self._held.items():
            if held.task_run is not None and (waits := held.task_run.outage.held) is not None:
                found[task_id] = waits
        return found

    async def stop(self) -> None:
        """Stop. Soldiers keep running and tasks stay claimed; the next process takes both over."""
        running: list[asyncio.Task[Any]] = [held.run for held in self._held.values() if held.run is not None]
        running += [self._cleanup] if self._cleanup is not None else []
        self._machine.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._context.stop_aside()
        await self._context.agents.close()
        self._context.writer.close()
        self._held.clear()

    # ── claiming ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _claim_waiting(self) -> bool:
        """Claim as many tasks as there is room for; return whether there may be more."""
        found = await self._bus.peek(TASKS, limit=_PEEK_LIMIT, types=[self.name], skip=self._held)
        busy = {held.task.id for held in self._held.values() if held.is_busy}
        room = self._context.manifest.concurrency - len(busy)
        if self.name in self._disabled:
            room = 0
        wanted = self._machine.choose(found, max(room, 0))
        self._waiting = len(found) - len(wanted)
        await self._claim(wanted)
        self._machine.slots.keep({held.task.id for held in self._held.values() if held.is_busy})
        return len(found) == _PEEK_LIMIT and len(found) < room

    async def _claim(self, ids: list[str]) -> None:
        if not ids:
            return
        claimed = await self._bus.claim(
            TASKS,
            worker=self._machine.worker,
            limit=len(ids),
            lease=LEASE_SECONDS,
            types=[self.name],
            ids=ids,
            max_attempts=_UNLIMITED_ATTEMPTS,
        )
        await self._accept(claimed)

    async def _accept(self, claimed: Iterable[Delivery], begun: Container[str] = ()) -> None:
        """Hold the tasks that were claimed, and settle what is not one."""
        tasks: list[tuple[Task, Delivery]] = []
        done: list[Delivery] = []
        dead: list[tuple[Delivery, str, str]] = []
        for delivery in claimed:
            try:
                task = parse_document(Task, delivery.envelope.payload, f"the task {delivery.event_id}")
            except InvalidDocument as error:
                log.warning("%s: %s", self.name, error)
                dead.append((delivery, "INVALID", str(error)))
                continue
            if task.type == CANCEL_TYPE:
                self._request_from(task)
                done.append(delivery)
            else:
                tasks.append((task, delivery))
        await self._machine.fetch_results([task for task, _ in tasks])
        for task, delivery in tasks:
            held = self._held[task.id] = _HeldTask(task, delivery)
            held.result = stored_result(self._context, task.id)
            if held.result is None:
                held.task_run = TaskRun(self._context, task, delivery, begun=task.id in begun)
                self._machine.slots.use(task.id)
        await self._bus.settle(done=done, dead=dead)

    def _start_runs(self) -> None:
        """Start every task run that is not running."""
        for held in self._held.values():
            if held.task_run is not None and held.run is None:
                held.run = asyncio.create_task(held.task_run.run(), name=f"{self.name} {held.task.id}")
                held.run.add_done_callback(lambda _: self._wake())

    def _start_cleanup(self) -> None:
        """Start the removal of old workplaces in the background, when it is due."""
        now = self._context.deps.monotonic()
        if self._last_cleanup is None or now - self._last_cleanup >= _CLEANUP_INTERVAL_SECONDS:
            self._last_cleanup = now
            held = self._held
            self._cleanup = asyncio.create_task(
                remove_old_workplaces(self._context, lambda: [one.task for one in held.values()])
            )

    async def _remove_stale_progress(self) -> None:
        self._context.progress_store.sweep()
        for task_id in self._context.progress_store.ids():
            if task_id not in self._held:
                record = await self._bus.find(task_id)
                if record is None or record.status in ("DONE", "DEAD"):
                    self._context.progress_store.forget(task_id)
                elif (progress := self._context.progress_store.load(task_id)) is not None and progress.held:
                    self._parked[task_id] = HeldTask(progress.held, progress.held_until or self._context.clock())

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _renew_leases(self) -> None:
        """Renew the leases. When one is lost, stop its soldier and write nothing."""
        if self._context.deps.monotonic() - self._renewed < RENEWAL_SECONDS:
            return
        held = {id(one.delivery): one for one in self._held.values() if not one.lost}
        for delivery in await self._bus.extend([one.delivery for one in held.values()], LEASE_SECONDS):
            one = held[id(delivery)]
            log.warning("%s: the lease of %s is lost; its soldier is stopped", self.name, one.task.id)
            one.lost = True
            if one.task_run is None:
                del self._held[one.task.id]
            else:
                one.task_run.abandon()
        self._renewed = self._context.deps.monotonic()
        self._machine.watch_leases(LEASE_SECONDS, self._abandon_all)

    def _abandon_all(self) -> None:
        """Stop all soldiers: other machines may take their tasks, as leases could not be renewed for example."""
        for held in self._held.values():
            if held.task_run is not None and held.result is None and not held.lost:
                log.warning("%s: %s is left to other machines; its soldier is stopped", self.name, held.task.id)
                held.lost = True
                held.task_run.abandon()

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _collect_ended(self) -> list[_HeldTask]:
        """Return the tasks to settle now."""
        ended: list[_HeldTask] = []
        for held in list(self._held.values()):
            if held.run is not None and held.run.done():
                ending = self._ending_of(held, held.run)
                if held.lost or isinstance(ending, TaskAbandoned):
                    del self._held[held.task.id]
                    continue
                if isinstance(ending, TaskFinished):
                    held.result = ending.result
                else:
                    held.parked = ending
            if held.result is not None or held.parked is not None:
                ended.append(held)
        return ended

    def _ending_of(self, held: _HeldTask, run: asyncio.Task[TaskEnding]) -> TaskEnding:
        try:
            return run.result()
        except Exception:
            if held.lost:
                return TaskAbandoned()
            # The error is not the task's: the next tick starts it again.
            held.run, held.task_run = None, TaskRun(self._context, held.task, held.delivery, begun=True)
            raise

    async def _cancel(self) -> None:
        """Carry out the requests of the king to cancel tasks."""
        home = self._context.home
        for task_id, request in cancel_requests(home, self.name).items():
            held = self._held.get(task_id)
            if held is None and not home.result(task_id).exists():
                record = await self._bus.find(task_id)
                if record is not None and record.status == "PROCESSING":
                    continue  # another process of this general holds it still
                if record is not None and record.status == "PENDING":
                    await self._claim([task_id])
                    held = self._held.get(task_id)
                    if held is None:  # parked: the result is there now, and the task is settled when it is due
                        await self._cancel_parked(task_id, record.envelope.payload, request.reason)
            if held is not None and held.task_run is not None:
                held.task_run.cancel(request.reason)
            if request.note is not None:
                if held is not None and not home.result(task_id).exists():
                    continue  # until it has ended: perhaps it succeeds just now
                if not await self._keep_stopped_reply(task_id, request.note):
                    continue
            drop_request(home, self.name, task_id)

    async def _keep_stopped_reply(self, task_id: str, note: str) -> bool:
        """Keep the reply to the requester of a cancelled task; return False if that is up to another machine."""
        context, result = self._context, stored_result(self._context, task_id)
        record = await self._bus.find(task_id)
        if result is None or record is None or result.status not in ("cancelled", "killed", "needs_human"):
            return True
        if machine_of(record.locked_by) not in (None, self._machine.name):
            return False
        try:
            task = parse_document(Task, record.envelope.payload, f"the task {task_id}")
            task_context = await load_task_context(context.home, self._bus, task)
            reply = stopped_reply(context, task_context, result.status == "needs_human", note)
        except CourtError as error:
            log.warning("%s: the cancellation of %s is not posted for its requester: %s", self.name, task_id, error)
            return True
        if reply is not None:
            keep_reply(context.home, self.name, reply)
        return True

    async def _cancel_parked(self, task_id: str, document: Any, reason: str) -> None:
        progress = self._context.progress_store.load(task_id) or TaskProgress(task_id, self._context.clock())
        progress.cancelled = reason
        self._context.progress_store.save(progress)
        task_context = TaskContext(parse_document(Task, document, task_id), TaskHistory(task_id))
        result = ResultBuilder(self._context, task_context, progress, None, None).cancelled(reason)
        errors = await store_results(self._context, result)
        if task_id in errors:
            raise errors[task_id]
        self._parked.pop(task_id, None)

    def _request_from(self, task: Task) -> None:
        target, reason = task.payload.get("task_id"), task.payload.get("reason")
        try:
            request_cancel(
                self._context.home, self.name, str(target), reason if isinstance(reason, str) else DEFAULT_REASON
            )
        except InvalidId as error:
            log.warning("%s: %s asks to cancel a task that cannot exist: %s", self.name, task.id, error)

    async def _settle(self, ended: Iterable[_HeldTask]) -> None:
        """Store results and settle tasks. What could not be stored stays held for the next tick."""
        done: list[tuple[Delivery, str | None]] = []
        parked: list[tuple[Delivery, float, str, str]] = []
        closed: list[_HeldTask] = []
        forgotten: list[str] = []  # tasks whose progress files can go
        ended = await self._still_held(ended)
        storing_error = await self._store_results(ended)
        for held in ended:
            if held.parked is not None:
                wait = parking_seconds(self._context, held.parked.resets_at)
                parked.append((held.delivery, wait, held.parked.code, held.parked.reason))
                self._parked[held.task.id] = HeldTask(held.parked.reason, self._context.clock() + wait)
            elif held.result is not None and held.stored:
                done.append((held.delivery, outcome_of(held.result)))
            else:
                continue
            closed.append(held)
        lost = {id(delivery) for delivery in await self._bus.settle(done=done, retry=parked)}
        for held in closed:
            del self._held[held.task.id]
            if id(held.delivery) in lost:
                log.warning("%s: the lease of %s was lost before it was settled", self.name, held.task.id)
            elif held.result is not None:
                self._parked.pop(held.task.id, None)
                forgotten.append(held.task.id)
                self._finished[held.result.status] = self._finished.get(held.result.status, 0) + 1
        await asyncio.to_thread(self._context.progress_store.forget, *forgotten)
        if storing_error is not None:
            raise storing_error

    async def _still_held(self, ended: Iterable[_HeldTask]) -> list[_HeldTask]:
        """Return the tasks that no other machine has taken over meanwhile: only their results count."""
        held = {id(one.delivery): one for one in ended}
        for delivery in await self._machine.lost([one.delivery for one in held.values()], LEASE_SECONDS):
            one = held.pop(id(delivery))
            log.warning("%s: another machine has taken over %s", self.name, one.task.id)
            del self._held[one.task.id]
        return list(held.values())

    async def _store_results(self, ended: Iterable[_HeldTask]) -> OSError | None:
        """Store all results in one batch; return one of the errors, if there were any."""
        new = {held.task.id: held for held in ended if held.result is not None and not held.stored}
        results = [held.result for held in new.values() if held.result is not None]
        errors = await store_results(self._context, *results)
        await self._machine.report_results([result for result in results if result.task_id not in errors])
        for task_id, held in new.items():
            held.stored = task_id not in errors
        return next(iter(errors.values()), None)
