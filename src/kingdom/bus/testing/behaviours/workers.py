"""The worker on a real store."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from datetime import timedelta

import pytest

from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import Reject, Retry
from kingdom.bus.eventbus import EventBus
from kingdom.bus.handlers import RetryPolicy, current_delivery
from kingdom.bus.testing.behaviours.base import (
    PATIENCE,
    Behaviours,
    SeenEvents,
    WatchedBus,
    counts,
    event,
    events,
    ids,
    known,
    of,
    running,
    take,
    take_one,
    worker_on,
)
from kingdom.bus.testing.harness import Harness
from kingdom.bus.worker import Worker

AT_ONCE = RetryPolicy(base=0, jitter=0, max_attempts=3)


class WorkerBehaviours(Behaviours):
    """``Worker.run``."""

    async def test_a_worker_handles_every_event_once(self, bus: EventBus, stream: str) -> None:
        many, seen = events(250), SeenEvents()
        await bus.publish(stream, many)
        worker = worker_on(bus, stream, batch=40)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            seen.add(item)

        async with running(worker):
            await seen.reach(250)
        assert sorted(seen.ids) == sorted(ids(many))
        assert await counts(bus, stream) == (0, 0, 0)
        assert worker.stats.processed == {"done": 250, "retry": 0, "dead": 0, "released": 0}

    async def test_a_worker_is_woken_by_an_event_that_arrives(self, harness: Harness, stream: str) -> None:
        if not harness.wakes:
            pytest.skip("this transport has no wake-ups: its workers poll")
        publisher, seen = await harness.open(), SeenEvents()
        worker = worker_on(harness.bus, stream, poll=600)
        worker.on("Happened")(seen.add)

        async with running(worker):
            for _ in range(10):  # the store may learn of a subscription with a delay
                await publisher.publish(stream, event())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await seen.reach(1)
                    break
        assert seen.events

    async def test_urgent_events_are_handled_first(self, bus: EventBus, stream: str) -> None:
        seen = SeenEvents()
        for priority in ("low", "normal", "high"):
            await bus.publish(stream, event(event_id=priority, priority=priority))
        worker = worker_on(bus, stream, concurrency=1)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            seen.add(item)

        async with running(worker):
            await seen.reach(3)
        assert seen.ids == ["high", "normal", "low"]

    async def test_a_handler_may_ask_for_another_try_later(self, harness: Harness, stream: str) -> None:
        watched, attempts, seen = WatchedBus(harness.bus), [], SeenEvents()
        [event_id] = await harness.bus.publish(stream, event())
        worker = worker_on(watched, stream)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            attempts.append(current_delivery().attempt)
            seen.add(item)
            if len(attempts) == 1:
                raise Retry("the exchange is closed", after=60)

        async with running(worker):
            await watched.returns("settle")
            record = await known(harness.bus, event_id)
            assert (record.status, record.error_code, record.error_message) == (
                "PENDING",
                "RETRY",
                "the exchange is closed",
            )
            assert record.next_retry_at is not None
            assert timedelta(seconds=50) < record.next_retry_at - harness.now() <= timedelta(seconds=60)
            await harness.advance(60)
            await seen.reach(2)
        assert attempts == [1, 2]
        assert (await known(harness.bus, event_id)).status == "DONE"

    async def test_a_failing_event_is_dead_when_its_attempts_are_spent(self, bus: EventBus, stream: str) -> None:
        seen = SeenEvents()
        await bus.publish(stream, event())
        worker = worker_on(bus, stream, retry=AT_ONCE)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            seen.add(item)
            raise RuntimeError("no connection to the exchange")

        async with running(worker):
            await seen.reach(3)
        [letter] = await bus.dead(stream)
        assert (letter.attempts, letter.error_code, letter.error_message) == (
            3,
            "RuntimeError",
            "no connection to the exchange",
        )
        assert worker.stats.processed == {"done": 0, "retry": 2, "dead": 1, "released": 0}

    @pytest.mark.parametrize(
        ("error", "code", "message"),
        [
            (Reject("MARKET_CLOSED", "no such market"), "MARKET_CLOSED", "no such market"),
            (PermissionError("not yours"), "PermissionError", "not yours"),
        ],
        ids=["Reject", "permanent error"],
    )
    async def test_what_can_never_succeed_is_dead_at_once(
        self, bus: EventBus, stream: str, error: Exception, code: str, message: str
    ) -> None:
        watched = WatchedBus(bus)
        await bus.publish(stream, event())
        worker = worker_on(watched, stream)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            raise error

        async with running(worker):
            await watched.returns("settle")
        [letter] = await bus.dead(stream)
        assert (letter.attempts, letter.error_code, letter.error_message) == (1, code, message)

    async def test_an_event_type_no_worker_knows_waits_and_is_seen_waiting(self, bus: EventBus, stream: str) -> None:
        seen = SeenEvents()
        await bus.publish(stream, event("Unknown"), event("Known"))
        worker, later = worker_on(bus, stream), worker_on(bus, stream)
        worker.on("Known")(seen.add)
        later.on("*")(seen.add)
        async with running(worker):
            await seen.reach(1)
        assert await bus.pending_types(stream) == {"Unknown": 1}
        assert await counts(bus, stream) == (1, 0, 0)
        async with running(later):
            await seen.reach(2)
        assert [item.type for item in seen.events] == ["Known", "Unknown"]

    async def test_a_worker_that_runs_until_it_is_idle_ends_by_itself(self, harness: Harness, stream: str) -> None:
        bus, seen, failed = harness.bus, SeenEvents(), 0
        later = event(not_before=harness.now() + timedelta(hours=1))
        await bus.publish(stream, [*events(30), later, event("Unknown")])
        worker = worker_on(bus, stream, batch=10, retry=AT_ONCE)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            nonlocal failed
            if failed < 2:
                failed += 1
                raise Retry("not yet", after=0)
            if item.payload.get("number") == 5:
                await bus.publish(stream, event())
            seen.add(item)

        async with asyncio.timeout(PATIENCE):
            await worker.run(until_idle=True)
        assert len(seen.events) == 31, "with what was retried, and what was published meanwhile"
        assert await counts(bus, stream) == (2, 0, 0), "what is for later and for others"
        async with asyncio.timeout(PATIENCE):
            await worker.run(until_idle=True)
        assert len(seen.events) == 31

    async def test_plain_functions_run_in_threads(self, bus: EventBus, stream: str) -> None:
        seen, places = SeenEvents(), []
        await bus.publish(stream, events(5))
        worker = worker_on(bus, stream, concurrency=2)

        @worker.on("Happened")
        def handle(item: Envelope) -> None:
            places.append((threading.current_thread() is threading.main_thread(), current_delivery().attempt))
            seen.add(item)

        async with running(worker):
            await seen.reach(5)
        assert places == [(False, 1)] * 5
        assert await counts(bus, stream) == (0, 0, 0)

    async def test_a_handler_may_publish_to_its_own_stream(self, bus: EventBus, stream: str) -> None:
        seen = SeenEvents()
        await bus.publish(stream, event(payload={"left": 4}))
        worker = worker_on(bus, stream)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            if left := item.payload["left"]:
                await bus.publish(stream, event(payload={"left": left - 1}, trace_id=item.trace_id))
            seen.add(item)

        async with running(worker):
            await seen.reach(5)
        assert [item.payload["left"] for item in seen.events] == [4, 3, 2, 1, 0]
        assert len({item.trace_id for item in seen.events}) == 1

    async def test_several_workers_share_a_stream(self, harness: Harness, stream: str) -> None:
        many, seen = events(200), SeenEvents()
        await harness.bus.publish(stream, many)
        buses = harness.bus, await harness.open()
        workers = [worker_on(bus, stream, name=f"worker-{number}", batch=10) for number, bus in enumerate(buses * 2)]
        for worker in workers:
            worker.on("Happened")(seen.add)
        async with running(*workers):
            await seen.reach(200)
        assert sorted(seen.ids) == sorted(ids(many))
        assert sum(worker.stats.processed["done"] for worker in workers) == 200

    async def test_an_ordered_stream_stays_ordered_with_many_handlers(self, bus: EventBus, stream: str) -> None:
        await bus.declare(stream, ordered=True)
        aggregates = {str(number): of(str(number), 8) for number in range(5)}
        await bus.publish(stream, [item for turn in zip(*aggregates.values(), strict=True) for item in turn])
        seen, running_now, finished = SeenEvents(), set(), defaultdict(list)
        worker = worker_on(bus, stream, concurrency=8, retry=AT_ONCE)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            name = str(item.aggregate_id)
            assert name not in running_now, "two events of one aggregate at a time"
            running_now.add(name)
            await asyncio.sleep(0)
            running_now.remove(name)
            if item.payload["number"] % 3 == 0 and current_delivery().attempt == 1:
                raise Retry(after=0)
            finished[name].append(item.event_id)
            seen.add(item)

        async with running(worker):
            await seen.reach(40)
        assert finished == {name: ids(items) for name, items in aggregates.items()}
        assert await counts(bus, stream) == (0, 0, 0)

    async def test_the_followers_of_a_settled_event_do_not_wait_for_the_next_poll(
        self, harness: Harness, stream: str
    ) -> None:
        if not harness.wakes:
            pytest.skip("this transport has no wake-ups: its workers poll")
        await harness.bus.declare(stream, ordered=True)
        orders, seen = of("1", 10), SeenEvents()
        await harness.bus.publish(stream, orders)
        worker = worker_on(harness.bus, stream, poll=600)
        worker.on("Happened")(seen.add)
        async with running(worker):
            await seen.reach(10)
        assert seen.ids == ids(orders)


class WorkerLeaseBehaviours(Behaviours):
    """Leases, seen from the worker."""

    async def test_the_lease_is_renewed_while_a_handler_runs(self, harness: Harness, stream: str) -> None:
        watched, seen, finish = WatchedBus(harness.bus), SeenEvents(), asyncio.Event()
        [event_id] = await harness.bus.publish(stream, event())
        lease = 0.9
        worker = worker_on(watched, stream, lease=lease, concurrency=1)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            seen.add(item)
            await finish.wait()

        async with running(worker):
            await seen.reach(1)
            for _ in range(3):  # together longer than the lease
                await watched.returns("extend")
                await harness.advance(lease * 0.6)
                assert await take(harness.bus, stream, worker="other") == []
            finish.set()
        record = await known(harness.bus, event_id)
        assert (record.status, record.attempts, worker.stats.leases_lost) == ("DONE", 1, 0)

    async def test_a_worker_finishes_what_a_dead_one_held(self, harness: Harness, stream: str) -> None:
        several, seen, attempts = events(5), SeenEvents(), []
        await harness.bus.publish(stream, several)
        await take(harness.bus, stream, worker="crashed", lease=30)
        await harness.advance(31)
        worker = worker_on(harness.bus, stream)

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            attempts.append(current_delivery().attempt)
            seen.add(item)

        async with running(worker):
            await seen.reach(5)
        assert sorted(seen.ids) == sorted(ids(several))
        assert attempts == [2] * 5

    async def test_an_event_that_kills_its_worker_every_time_ends_dead(self, harness: Harness, stream: str) -> None:
        bus, poison, good, seen = harness.bus, event(), event(), SeenEvents()
        await bus.publish(stream, poison)
        for _ in range(2):
            await take_one(bus, stream, worker="crashed", lease=30, max_attempts=2)
            await harness.advance(31)
        await bus.publish(stream, good)
        worker = worker_on(bus, stream, retry=RetryPolicy(max_attempts=2))
        worker.on("Happened")(seen.add)
        async with running(worker):
            await seen.reach(1)
        assert seen.ids == [good.event_id]
        [letter] = await bus.dead(stream)
        assert (letter.event_id, letter.attempts, letter.error_code) == (poison.event_id, 2, "LEASE_EXPIRED")

    async def test_a_worker_that_lost_its_lease_writes_nothing(self, harness: Harness, stream: str) -> None:
        watched, other, seen, finish = WatchedBus(harness.bus), await harness.open(), SeenEvents(), asyncio.Event()
        [event_id] = await harness.bus.publish(stream, event())
        worker = worker_on(watched, stream, lease=60, concurrency=1)  # busy, so that it does not claim the event again

        @worker.on("Happened")
        async def handle(item: Envelope) -> None:
            seen.add(item)
            await finish.wait()
            raise Reject("LATE", "it must not be seen")

        async with running(worker):
            await seen.reach(1)
            await harness.advance(61)
            holder = await take_one(other, stream, worker="other")
            finish.set()
            await watched.returns("settle")
        record = await known(other, event_id)
        assert (record.status, record.attempts, record.error_code) == ("PROCESSING", 2, None)
        assert worker.stats.leases_lost == 1
        assert await other.settle(done=[holder]) == []


class StopBehaviours(Behaviours):
    """``Worker.stop``, the grace, and cancellation."""

    async def test_stopping_lets_running_handlers_finish(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        worker, seen, finish = _blocked_worker(bus, stream)
        async with running(worker):
            await seen.reach(1)
            worker.stop()
            [late] = await bus.publish(stream, event())
            asyncio.get_running_loop().call_later(0.05, finish.set)
        assert (await known(bus, event_id)).status == "DONE"
        assert ((await known(bus, late)).status, (await known(bus, late)).attempts) == ("PENDING", 0)

    async def test_what_was_claimed_but_not_started_is_given_back(self, bus: EventBus, stream: str) -> None:
        # A few quick ones first: a worker claims ahead only when its handlers are fast.
        quick, slow = [event("Quick") for _ in range(5)], events(20)
        await bus.publish(stream, quick)
        worker, seen, finish = _blocked_worker(bus, stream, concurrency=1, batch=10)
        worker.on("Quick")(_nothing)
        async with running(worker):
            await bus.publish(stream, slow)
            await seen.reach(1)
            worker.stop()
            async with asyncio.timeout(PATIENCE):
                while await counts(bus, stream) != (19, 1, 0):  # noqa: ASYNC110 - only the store knows
                    await asyncio.sleep(0.01)
            finish.set()
        assert seen.ids == [slow[0].event_id]
        assert [(item.event_id, item.attempt) for item in await take(bus, stream)] == [
            (event_id, 1) for event_id in ids(slow[1:])
        ]

    async def test_when_the_grace_is_over_a_running_event_is_given_back_unharmed(
        self, bus: EventBus, stream: str
    ) -> None:
        [event_id] = await bus.publish(stream, event())
        worker, seen, _ = _blocked_worker(bus, stream, grace=0.05)
        async with running(worker):
            await seen.reach(1)
        record = await known(bus, event_id)
        assert (record.status, record.attempts, record.error_code) == ("PENDING", 0, None)
        assert (await take_one(bus, stream)).attempt == 1
        assert worker.stats.processed["released"] == 1

    async def test_a_cancelled_worker_gives_back_what_it_holds(self, bus: EventBus, stream: str) -> None:
        several = events(3)
        await bus.publish(stream, event("Quick"), *several)
        worker, seen, _ = _blocked_worker(bus, stream, concurrency=3)
        worker.on("Quick")(_nothing)
        task = asyncio.create_task(worker.run())
        await seen.reach(3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert [(item.event_id, item.attempt) for item in await take(bus, stream)] == [
            (event_id, 1) for event_id in ids(several)
        ]

    async def test_a_worker_stopped_while_it_is_idle_returns(self, bus: EventBus, stream: str) -> None:
        worker, seen, _ = _blocked_worker(bus, stream, poll=600)
        async with running(worker):
            assert await counts(bus, stream) == (0, 0, 0)
        assert seen.events == []

    async def test_a_worker_can_run_again_after_it_stopped(self, bus: EventBus, stream: str) -> None:
        worker, seen, finish = _blocked_worker(bus, stream)
        finish.set()
        for turn in (1, 2):
            await bus.publish(stream, event())
            async with running(worker):
                await seen.reach(turn)
        assert await counts(bus, stream) == (0, 0, 0)


def _blocked_worker(bus: EventBus, stream: str, **options: object) -> tuple[Worker, SeenEvents, asyncio.Event]:
    """Return a worker whose handlers wait for the returned event."""
    worker, seen, finish = worker_on(bus, stream, **options), SeenEvents(), asyncio.Event()

    @worker.on("Happened")
    async def handle(item: Envelope) -> None:
        seen.add(item)
        await finish.wait()

    return worker, seen, finish


async def _nothing(item: Envelope) -> None:
    """Do nothing."""
