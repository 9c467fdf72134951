"""Workers that die, hang or lose their lease: their events are finished all the same, and once."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio

from kingdom.bus.dispatcher import current_delivery
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import Reject
from kingdom.bus.retry import RetryPolicy
from kingdom.bus.testing.behaviours.base import Behaviours, event, events, ids, known, take, take_one
from kingdom.bus.testing.behaviours.watching import Tally, WatchedBus, running, worker_on
from kingdom.bus.testing.harness import Harness


class Surviving(Behaviours):
    """Leases, seen from the worker."""

    async def test_the_lease_is_renewed_while_a_handler_runs(self, harness: Harness, stream: str) -> None:
        watched, seen, finish = WatchedBus(harness.bus), Tally(), asyncio.Event()
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
        several, seen, attempts = events(5), Tally(), []
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
        bus, poison, good, seen = harness.bus, event(), event(), Tally()
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
        watched, other, seen, finish = WatchedBus(harness.bus), await harness.open(), Tally(), asyncio.Event()
        [event_id] = await harness.bus.publish(stream, event())
        worker = worker_on(watched, stream, lease=60, concurrency=1)  # busy, so that it does not claim the event anew

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
