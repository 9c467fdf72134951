"""The worker on a real store: what becomes of events, whatever their handlers do."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from datetime import timedelta

import pytest

from kingdom.bus.dispatcher import current_delivery
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import Reject, Retry
from kingdom.bus.eventbus import EventBus
from kingdom.bus.retry import RetryPolicy
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, known, of
from kingdom.bus.testing.behaviours.watching import Tally, WatchedBus, running, worker_on
from kingdom.bus.testing.harness import Harness

AT_ONCE = RetryPolicy(base=0, jitter=0, max_attempts=3)


class Working(Behaviours):
    """``Worker.run``."""

    async def test_a_worker_handles_every_event_once(self, bus: EventBus, stream: str) -> None:
        many, seen = events(250), Tally()
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
        publisher, seen = await harness.open(), Tally()
        worker = worker_on(harness.bus, stream, poll=600)
        worker.on("Happened")(seen.add)

        async with running(worker):
            for _ in range(10):  # a subscription may take a moment to be known to the store
                await publisher.publish(stream, event())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await seen.reach(1)
                    break
        assert seen.events

    async def test_urgent_events_are_handled_first(self, bus: EventBus, stream: str) -> None:
        seen = Tally()
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
        watched, attempts, seen = WatchedBus(harness.bus), [], Tally()
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
        seen = Tally()
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
        seen = Tally()
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

    async def test_plain_functions_run_in_threads(self, bus: EventBus, stream: str) -> None:
        seen, places = Tally(), []
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
        seen = Tally()
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
        many, seen = events(200), Tally()
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
        seen, running_now, finished = Tally(), set(), defaultdict(list)
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
        orders, seen = of("1", 10), Tally()
        await harness.bus.publish(stream, orders)
        worker = worker_on(harness.bus, stream, poll=600)
        worker.on("Happened")(seen.add)
        async with running(worker):
            await seen.reach(10)
        assert seen.ids == ids(orders)
