"""Stopping a worker: nothing is lost, nothing is kept, nothing is harmed."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio
import contextlib

from kingdom.bus.envelope import Envelope
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, known, take, take_one
from kingdom.bus.testing.behaviours.watching import Tally, running, worker_on
from kingdom.bus.worker import Worker


class Stopping(Behaviours):
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
            asyncio.get_running_loop().call_later(0.05, finish.set)
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


def _blocked_worker(bus: EventBus, stream: str, **options: object) -> tuple[Worker, Tally, asyncio.Event]:
    """A worker whose handlers wait for the event returned with it."""
    worker, seen, finish = worker_on(bus, stream, **options), Tally(), asyncio.Event()

    @worker.on("Happened")
    async def handle(item: Envelope) -> None:
        seen.add(item)
        await finish.wait()

    return worker, seen, finish


async def _nothing(item: Envelope) -> None:
    """A handler that is done at once."""
