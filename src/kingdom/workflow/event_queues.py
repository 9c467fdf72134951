"""Handling events: those of one workflow one after the other, those of different ones side by side.

An event is ended in the transaction that changes what it changes, so it is handled once, whatever happens in between.
What happens outside follows the commit. In a crash it may be lost there; recovery finds it in the state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kingdom.bus import Envelope, RetryPolicy
from kingdom.bus.errors import BusError
from kingdom.bus.handlers import classify_failure
from kingdom.workflow.context import Effect, UnitOfWork, WorkflowContext, log
from kingdom.workflow.domain.events import CATALOG
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.errors import ConcurrentChange, StoreError
from kingdom.workflow.handlers import HANDLERS, Handler, IncomingEvent
from kingdom.workflow.ports import RecordedEvent
from kingdom.workflow.store.transactions import STREAM, StoreTransaction
from kingdom.workflow.usecases.steps import StopService

ENGINE_WORKER: Final = "workflow-engine"
_MAX_BATCH_EVENTS: Final = 16  # events of one workflow handled in one transaction at most
_OUTAGE_RETRY: Final = RetryPolicy(base=0.1, factor=2, cap=15, jitter=0.2)  # while the store is away or full


class _NotReady(Exception):
    """An event that cannot be handled now: an earlier one of its workflow is not, or somebody was faster."""


class EventQueue:
    """The events of one workflow that wait here."""

    def __init__(self, aggregate_id: str) -> None:
        self.aggregate_id = aggregate_id
        self.waiting: deque[IncomingEvent] = deque()
        self.taken: list[IncomingEvent] = []  # being handled
        self.task: asyncio.Task[None] | None = None
        self.outages = 0
        self.alone = 0  # so many of the next ones have a transaction of their own each
        self.found = False  # it had events that were found in the store
        self.effects: list[Effect] = []  # of an event that was handled as it came
        self.give_back: Callable[[], None] | None = None  # the turn it was handled in


class EventQueues:
    """All lanes. ``look`` is called when there may be more in the store than was handed over."""

    def __init__(self, parts: WorkflowContext, look: Callable[[float], None], retry: RetryPolicy | None = None) -> None:
        self._parts = parts
        self._look = look
        self._retry = retry or RetryPolicy(base=0.5, factor=2, cap=60, jitter=0.2, max_attempts=8)
        self._halting = StopService(parts)
        self._handlers: dict[str, Handler] = {name: kind(parts) for name, kind in HANDLERS.items()}
        self._lanes: dict[str, EventQueue] = {}
        self.opened = 0  # lanes so far: the same number before and after means that nothing was handled in between
        self._idle = asyncio.Event()
        self._idle.set()
        self._held_back: set[str] = set()  # workflows with an event in the store that waits for its next try
        self.known: set[str] = set()  # events that wait here
        self.handles_inline = False  # whether news may be handled as they come: not before recovery is through
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ── from outside ──────────────────────────────────────────────────────────────────────────────────────────

    def add(self, envelopes: list[Envelope], *, found: bool = False) -> None:
        """Have events handled, after those of their workflow that wait already; ``found``: by looking for them."""
        for envelope in envelopes:
            if envelope.event_id in self.known:
                continue
            self.known.add(envelope.event_id)
            news = incoming_event(envelope)
            lane = self._lanes.get(news.aggregate_id) or self._open(EventQueue(news.aggregate_id))
            lane.waiting.append(news)
            lane.found = lane.found or found

    def _open(self, lane: EventQueue) -> EventQueue:
        self._lanes[lane.aggregate_id] = lane
        self.opened += 1
        lane.task = asyncio.get_running_loop().create_task(self._run(lane), name=f"lane-{lane.aggregate_id}")
        self._idle.clear()
        return lane

    async def inline(self, tx: StoreTransaction, told: Sequence[RecordedEvent]) -> list[bool]:
        """Handle events in the transaction that records them: views always, news of agents when nothing else waits.

        That spares their way through the bus: one commit for each task instead of two.
        """
        alone = len(told) == 1
        return [await self._inline(tx, item, alone=alone) for item in told]

    async def _inline(self, tx: StoreTransaction, told: RecordedEvent, *, alone: bool) -> bool:
        handler = self._handlers[type(told.event).__name__]
        news = IncomingEvent("", told.event, told.aggregate_id, told.attempt)
        if handler.view:
            await handler.handle(UnitOfWork(tx), news)
            return True
        aside = handler.outside or told.aggregate_id in self._lanes or told.aggregate_id in self._held_back
        if not self.handles_inline or not alone or aside:
            return False
        give_back = await self._parts.turns.take(told.aggregate_id)
        if give_back is None:
            return False
        lane, step = EventQueue(told.aggregate_id), UnitOfWork(tx)
        tx.ends.append(lambda committed: self._inline_over(lane, give_back, committed=committed))
        error = await tx.run_or_undo(lambda: handler.handle(step, news))
        if error is not None:  # from the bus it is handled with all that belongs to it
            return False
        lane.effects = step.effects
        return True

    def _inline_over(self, lane: EventQueue, give_back: Callable[[], None], *, committed: bool) -> None:
        if not committed or not lane.effects:
            give_back()
            return
        lane.give_back = give_back
        self._open(lane)

    @property
    def busy(self) -> bool:
        """Whether something is being handled."""
        return bool(self._lanes)

    async def idle(self) -> None:
        """Wait until nothing waits here; raises what broke a lane."""
        await self._idle.wait()
        if self.broken.done():
            self.broken.result()

    async def close(self, grace: float) -> None:
        """Let what is being handled come to an end, then stop. What waits stays in the store."""
        for lane in self._lanes.values():
            lane.waiting.clear()
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def abandon(self) -> None:
        """Stop in the middle, as if killed."""
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()

    # ── one lane ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, lane: EventQueue) -> None:
        try:
            await self._follow(lane)
            while lane.waiting:
                async with self._parts.turns.of(lane.aggregate_id):
                    await self._next(lane)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the lane is the whole task: it is told, not raised
            self._break(error)
        finally:
            self._forget(lane)
            del self._lanes[lane.aggregate_id]
            if not self._lanes:
                self._idle.set()
            if lane.found:  # what stands behind it in the store was not handed over
                self._look(0.0)

    async def _follow(self, lane: EventQueue) -> None:
        """What an event that was handled as it came asked for outside, still in its turn."""
        if lane.give_back is not None:
            try:
                for effect in lane.effects:
                    await effect()
            finally:
                lane.give_back()

    def _break(self, error: BaseException) -> None:
        """A bug, not a verdict: the engine must not look as if it worked."""
        log.critical("the engine broke", exc_info=error)
        if not self.broken.done():
            self.broken.set_exception(error)
            self.broken.exception()  # nobody has to wait for it

    def _forget(self, lane: EventQueue) -> None:
        self.known.difference_update(news.event_id for news in (*lane.taken, *lane.waiting))
        lane.taken = []
        lane.waiting.clear()

    async def _next(self, lane: EventQueue) -> None:
        batch = lane.taken = _next_batch(lane.waiting, self._handlers, 1 if lane.alone else _MAX_BATCH_EVENTS)
        for _ in batch:
            lane.waiting.popleft()
        try:
            await self._handle(batch)
        except (_NotReady, ConcurrentChange):
            self._held_back.add(lane.aggregate_id)
            self._forget(lane)
            self._look(0.0)
        except (StoreError, BusError) as error:
            await self._sit_out(lane, error)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is a verdict on the event
            if len(batch) > 1:  # which of them it was is found out one by one
                self._put_back(lane)
                lane.alone = len(batch)
            else:
                await self._failed(lane, batch[0], error)
        else:
            self.known.difference_update(news.event_id for news in batch)
            self._held_back.discard(lane.aggregate_id)
            lane.taken = []
            lane.outages = 0
            lane.alone = max(0, lane.alone - len(batch))

    def _put_back(self, lane: EventQueue) -> None:
        lane.waiting.extendleft(reversed(lane.taken))
        lane.taken = []

    async def _handle(self, batch: list[IncomingEvent]) -> None:
        """Handle events in one transaction; what they ask for outside follows."""
        made = None
        if len(batch) == 1 and (handler := self._handler(batch[0])).outside:
            made = await handler.before(batch[0])
        async with self._parts.step() as step:
            for news in batch:
                if not await step.tx.consume(news.event_id):
                    raise _NotReady
                await self._handler(news).handle(step, news, made)

    def _handler(self, news: IncomingEvent) -> Handler:
        return self._handlers[type(news.event).__name__]

    # ── when it does not work ─────────────────────────────────────────────────────────────────────────────────

    async def _sit_out(self, lane: EventQueue, error: Exception) -> None:
        """The store is away, or full: nothing is lost by waiting, and nobody has to restart anything after."""
        lane.outages += 1
        log.warning("workflow %s waits for the store: %s", lane.aggregate_id, error)
        self._put_back(lane)
        await asyncio.sleep(_OUTAGE_RETRY.delay(lane.outages))

    async def _failed(self, lane: EventQueue, news: IncomingEvent, error: Exception) -> None:
        """Have an event tried again later; when its attempts are spent, its workflow pauses with the reason."""
        self._parts.counts.retried += 1
        self._held_back.add(lane.aggregate_id)
        self._forget(lane)
        bus = self._parts.store.bus
        verdict = classify_failure(error)
        name = type(news.event).__name__
        for delivery in await bus.claim(
            STREAM, worker=ENGINE_WORKER, ids=[news.event_id], lease=60, max_attempts=10**6
        ):
            if delivery.attempt < self._retry.max_attempts:
                delay = self._retry.delay(delivery.attempt)
                log.warning("%s of %s failed, again in %.1f s", name, lane.aggregate_id, delay, exc_info=error)
                await bus.settle(retry=[(delivery, delay, verdict.code, verdict.message)])
                self._look(delay)
            else:
                log.error("%s of %s cannot be handled", name, lane.aggregate_id, exc_info=error)
                await self._give_up(lane.aggregate_id, f"{name} could not be handled: {verdict.message}")
                await bus.settle(dead=[(delivery, verdict.code, verdict.message)])

    async def _give_up(self, workflow_id: str, reason: str) -> None:
        async with self._parts.step() as step:
            workflow = await step.tx.workflows.find(workflow_id)
            if workflow is not None and workflow.status is WorkflowStatus.RUNNING:
                await self._halting.halt(step, workflow, reason, fail=False)


def incoming_event(envelope: Envelope) -> IncomingEvent:
    """An envelope as handlers want it."""
    event = CATALOG[envelope.type].from_payload(dict(envelope.payload))
    attempt = envelope.attributes.get("attempt")
    return IncomingEvent(
        envelope.event_id, event, str(envelope.aggregate_id), None if attempt is None else int(str(attempt))
    )


def _next_batch(waiting: deque[IncomingEvent], handlers: dict[str, Handler], most: int) -> list[IncomingEvent]:
    """The first event, and those behind it that can share its transaction."""
    batch: list[IncomingEvent] = []
    for news in waiting:
        outside = handlers[type(news.event).__name__].outside
        if batch and outside:
            break
        batch.append(news)
        if outside or len(batch) == most:
            break
    return batch
