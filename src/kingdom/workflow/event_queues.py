"""Handle events: those of one workflow in order, those of different workflows concurrently.

An event is consumed in the transaction that applies it, so it is applied once, even after a crash. External calls
follow the commit; a crash may lose them, and recovery repeats them from the stored state.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kingdom.bus import Envelope, RetryPolicy
from kingdom.bus.errors import BusError
from kingdom.bus.handlers import classify_failure
from kingdom.workflow.context import WORKFLOW, Effect, UnitOfWork, WorkflowContext, log
from kingdom.workflow.domain.events import CATALOG
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.errors import ConcurrentChange, StoreError, WorkflowError
from kingdom.workflow.handlers import HANDLERS, Handler, IncomingEvent
from kingdom.workflow.ports import RecordedEvent, WorkflowStore
from kingdom.workflow.store.holds import EngineReplaced
from kingdom.workflow.store.transactions import STREAM, WorkflowTransaction
from kingdom.workflow.usecases.steps import halt

_ENGINE_WORKER: Final = "workflow-engine"
_MAX_BATCH_EVENTS: Final = 16  # events of one workflow in one transaction
_OUTAGE_RETRY: Final = RetryPolicy(base=0.1, factor=2, cap=15, jitter=0.2)  # while the store is unavailable or full


class _NotReady(Exception):
    """The event cannot be handled now: an earlier one of its workflow waits, or somebody else consumed it."""


class EventQueue:
    """The events of one workflow that wait in memory. It exists while there are any."""

    def __init__(self, aggregate_type: str | None, aggregate_id: str) -> None:
        self.aggregate_type = aggregate_type
        self.aggregate_id = aggregate_id
        self.waiting: deque[IncomingEvent] = deque()
        self.taken: list[IncomingEvent] = []  # being handled
        self.task: asyncio.Task[None] | None = None
        self.outages = 0
        self.single = 0  # how many of the next events get a transaction of their own
        self.polled = False  # whether it has events that were found by polling the store
        self.effects: list[Effect] = []  # of an event that was handled inline
        self.release: Callable[[], None] | None = None  # releases the lock an inline event was handled under
        self.unit: UnitOfWork | None = None  # the open transaction that also handles the events it records


class EventQueues:
    """The queues of all workflows. ``look`` is called when the store may hold events that are not in memory."""

    def __init__(
        self, context: WorkflowContext, look: Callable[[float], None], retry: RetryPolicy | None = None
    ) -> None:
        self._context = context
        self._look = look
        self._retry = retry or RetryPolicy(base=0.5, factor=2, cap=60, jitter=0.2, max_attempts=8)
        self._handlers: dict[str, Handler] = {name: kind(context) for name, kind in HANDLERS.items()}
        self._queues: dict[str, EventQueue] = {}
        self.opened = 0  # queues opened so far: unchanged means that nothing was handled in between
        self._idle = asyncio.Event()
        self._idle.set()
        self._held_back: set[str] = set()  # workflows with an event in the store that waits for its retry
        self.known: set[str] = set()  # ids of the events in memory
        self.handles_inline = False  # whether agents' events are handled inline: not before recovery is done
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, envelopes: list[Envelope], *, polled: bool = False) -> None:
        """Queue events behind those of their workflow; ``polled``: they were found by polling the store.

        Events of workflows that another engine holds stay in the store.
        """
        for envelope in envelopes:
            if envelope.event_id in self.known or not self.is_mine(envelope.aggregate_type, envelope.aggregate_id):
                continue
            self.known.add(envelope.event_id)
            incoming = incoming_event(envelope)
            queue = self._queues.get(incoming.aggregate_id)
            if queue is None:
                queue = self._open(EventQueue(envelope.aggregate_type, incoming.aggregate_id))
            queue.waiting.append(incoming)
            queue.polled = queue.polled or polled

    def _open(self, queue: EventQueue) -> EventQueue:
        self._queues[queue.aggregate_id] = queue
        self.opened += 1
        queue.task = asyncio.get_running_loop().create_task(self._run(queue), name=f"events-{queue.aggregate_id}")
        self._idle.clear()
        return queue

    def is_mine(self, aggregate_type: str | None, aggregate_id: str | None) -> bool:
        """Whether this engine handles the events of an aggregate: one of a workflow that it holds, or no workflow."""
        holds = self._context.store.holds
        return holds is None or aggregate_type != WORKFLOW or holds.is_mine(str(aggregate_id))

    @property
    def busy(self) -> bool:
        """Whether an event is being handled or waits in memory."""
        return bool(self._queues)

    async def idle(self) -> None:
        """Wait until all queues are empty; raise the error that broke one."""
        await self._idle.wait()
        if self.broken.done():
            self.broken.result()

    async def close(self, grace: float) -> None:
        """Wait up to ``grace`` seconds for running handlers, then cancel them. Waiting events stay in the store."""
        for queue in self._queues.values():
            queue.waiting.clear()
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def abandon(self) -> None:
        """Cancel everything at once, as if the process were killed."""
        for queue in self._queues.values():
            if queue.task is not None:
                queue.task.cancel()

    # ── inline: in the transaction that records the event ─────────────────────────────────────────────────────

    async def inline(self, tx: WorkflowTransaction, events: Sequence[RecordedEvent]) -> list[bool]:
        """Handle events in the transaction that records them; return for each whether it was handled.

        View handlers always run inline. A single event of an agent does when nothing else of its workflow waits: one
        commit per task instead of two. So do the events that a handler records, in the transaction of their cause.
        """
        alone = len(events) == 1
        return [await self._inline(tx, event, alone=alone) for event in events]

    async def _inline(self, tx: WorkflowTransaction, recorded: RecordedEvent, *, alone: bool) -> bool:
        handler = self._handlers[type(recorded.event).__name__]
        incoming = IncomingEvent("", recorded.event, recorded.aggregate_id, recorded.attempt)
        if handler.view:
            await handler.handle(UnitOfWork(tx), incoming)
            return True
        queue = self._queues.get(recorded.aggregate_id)
        if queue is not None and queue.unit is not None and queue.unit.tx is tx:
            return await self._follow(queue, queue.unit, handler, incoming)
        if not self.is_mine(recorded.aggregate_type, recorded.aggregate_id):
            return False
        waits = queue is not None or recorded.aggregate_id in self._held_back
        if not self.handles_inline or not alone or handler.has_prelude or waits:
            return False
        release = await self._context.locks.take(recorded.aggregate_id)
        if release is None:
            return False
        queue, unit = EventQueue(recorded.aggregate_type, recorded.aggregate_id), UnitOfWork(tx)
        tx.ends.append(lambda committed: self._end_inline(queue, release, committed=committed))
        error = await tx.run_or_undo(lambda: handler.handle(unit, incoming))
        if error is not None:  # from the bus it is handled again, with retries
            return False
        queue.effects = unit.effects
        return True

    async def _follow(self, queue: EventQueue, unit: UnitOfWork, handler: Handler, incoming: IncomingEvent) -> bool:
        """Handle an event in the transaction that handles its cause; return False from the first that cannot be."""
        effects = len(unit.effects)
        if not handler.has_prelude and not queue.waiting:
            if await unit.tx.run_or_undo(lambda: handler.handle(unit, incoming)) is None:
                return True
            del unit.effects[effects:]  # from the bus it is handled again, with retries
        queue.unit = None
        return False

    def _end_inline(self, queue: EventQueue, release: Callable[[], None], *, committed: bool) -> None:
        if not committed or not queue.effects:
            release()
            return
        queue.release = release
        self._open(queue)

    async def _run_effects(self, queue: EventQueue) -> None:
        """Run the effects of an event that was handled inline, still under its workflow's lock."""
        if queue.release is not None:
            try:
                for effect in queue.effects:
                    await effect()
            finally:
                queue.release()

    # ── one queue ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, queue: EventQueue) -> None:
        try:
            await self._run_effects(queue)
            while queue.waiting:
                async with self._context.locks.of(queue.aggregate_id):
                    await self._next(queue)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - nobody awaits this task: report the error through `broken`
            self.fail(error)
        finally:
            self._forget(queue)
            del self._queues[queue.aggregate_id]
            if not self._queues:
                self._idle.set()
            if queue.polled:  # the events behind these were not polled yet
                self._look(0.0)

    def fail(self, error: BaseException) -> None:
        """Report what broke the engine, a bug or a lost lease: it must not look as if it worked."""
        known = isinstance(error, WorkflowError)
        log.critical("the engine broke: %s", error, exc_info=None if known else error)
        if not self.broken.done():
            self.broken.set_exception(error)
            self.broken.exception()  # mark as retrieved: nobody has to await it

    def _forget(self, queue: EventQueue) -> None:
        self.known.difference_update(incoming.event_id for incoming in (*queue.taken, *queue.waiting))
        queue.taken = []
        queue.waiting.clear()

    async def _next(self, queue: EventQueue) -> None:
        if not self.is_mine(queue.aggregate_type, queue.aggregate_id):  # it was being taken over, and that failed
            return self._forget(queue)
        batch = queue.taken = _next_batch(queue.waiting, self._handlers, 1 if queue.single else _MAX_BATCH_EVENTS)
        for _ in batch:
            queue.waiting.popleft()
        try:
            await self._handle(batch)
        except (_NotReady, ConcurrentChange):
            self._held_back.add(queue.aggregate_id)
            self._forget(queue)
            self._look(0.0)
        except (StoreError, BusError) as error:
            await self._wait_for_store(queue, error)
        except EngineReplaced:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler raises counts as a failure of the event
            if len(batch) > 1:  # handle them one by one to find the one that fails
                self._put_back(queue)
                queue.single = len(batch)
            else:
                await self._failed(queue, batch[0], error)
        else:
            self.known.difference_update(incoming.event_id for incoming in batch)
            self._held_back.discard(queue.aggregate_id)
            queue.taken = []
            queue.outages = 0
            queue.single = max(0, queue.single - len(batch))

    def _put_back(self, queue: EventQueue) -> None:
        queue.waiting.extendleft(reversed(queue.taken))
        queue.taken = []

    async def _handle(self, batch: list[IncomingEvent]) -> None:
        """Handle events in one transaction; their effects follow the commit."""
        prelude = None
        if len(batch) == 1 and (handler := self._handler(batch[0])).has_prelude:
            prelude = await handler.before(batch[0])
        queue = self._queues[batch[0].aggregate_id]
        try:
            async with self._context.unit_of_work() as unit:
                for incoming in batch:
                    if not await unit.tx.consume(incoming.event_id):
                        raise _NotReady
                    await self._handler(incoming).handle(unit, incoming, prelude)
                queue.unit = unit if self.handles_inline else None
        finally:
            queue.unit = None

    def _handler(self, incoming: IncomingEvent) -> Handler:
        return self._handlers[type(incoming.event).__name__]

    # ── failures ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _wait_for_store(self, queue: EventQueue, error: Exception) -> None:
        """Wait while the store is unavailable or full. Nothing is lost, and no restart is needed afterwards."""
        queue.outages += 1
        log.warning("workflow %s waits for the store: %s", queue.aggregate_id, error)
        self._put_back(queue)
        await asyncio.sleep(_OUTAGE_RETRY.delay(queue.outages))

    async def _failed(self, queue: EventQueue, incoming: IncomingEvent, error: Exception) -> None:
        """Retry an event later; after its last attempt, pause its workflow with the reason."""
        self._context.counters.retried += 1
        self._held_back.add(queue.aggregate_id)
        self._forget(queue)
        bus = self._context.store.bus
        verdict = classify_failure(error)
        name = type(incoming.event).__name__
        for delivery in await bus.claim(
            STREAM, worker=engine_worker(self._context.store), ids=[incoming.event_id], lease=60, max_attempts=10**6
        ):
            if delivery.attempt < self._retry.max_attempts:
                delay = self._retry.delay(delivery.attempt)
                log.warning("%s of %s failed, again in %.1f s", name, queue.aggregate_id, delay, exc_info=error)
                await bus.settle(retry=[(delivery, delay, verdict.code, verdict.message)])
                self._look(delay)
            else:
                log.error("%s of %s cannot be handled", name, queue.aggregate_id, exc_info=error)
                await self._pause(queue.aggregate_id, f"{name} could not be handled: {verdict.message}")
                await bus.settle(dead=[(delivery, verdict.code, verdict.message)])

    async def _pause(self, workflow_id: str, reason: str) -> None:
        async with self._context.unit_of_work() as unit:
            workflow = await unit.tx.workflows.find(workflow_id)
            if workflow is not None and workflow.status is WorkflowStatus.RUNNING:
                await halt(self._context, unit, workflow, reason, fail=False)


def engine_worker(store: WorkflowStore) -> str:
    """Return the name under which the engine of this process claims from the bus."""
    if store.holds is None:
        return _ENGINE_WORKER
    return f"{_ENGINE_WORKER}-{hashlib.sha256(store.holds.home.encode()).hexdigest()[:12]}"


def incoming_event(envelope: Envelope) -> IncomingEvent:
    """Decode an envelope of the stream."""
    event = CATALOG[envelope.type].from_payload(dict(envelope.payload))
    attempt = envelope.attributes.get("attempt")
    aggregate_id = str(envelope.aggregate_id)
    return IncomingEvent(envelope.event_id, event, aggregate_id, None if attempt is None else int(str(attempt)))


def _next_batch(waiting: deque[IncomingEvent], handlers: dict[str, Handler], most: int) -> list[IncomingEvent]:
    """Return the first event and those behind it that can share its transaction."""
    batch: list[IncomingEvent] = []
    for incoming in waiting:
        alone = handlers[type(incoming.event).__name__].has_prelude
        if batch and alone:
            break
        batch.append(incoming)
        if alone or len(batch) == most:
            break
    return batch
