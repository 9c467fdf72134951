"""What operators see: how full streams are, dead letters, one event's record."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

from datetime import timedelta

import pytest

from kingdom.bus.delivery import Depth
from kingdom.bus.errors import InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import (
    Behaviours,
    bury,
    counts,
    depth_of,
    event,
    events,
    finish,
    ids,
    known,
    take,
    take_one,
)
from kingdom.bus.testing.harness import Harness


class Operating(Behaviours):
    """``depth``, ``pending_types``, ``dead``, ``find``."""

    async def test_depth_counts_what_waits_what_is_held_and_what_is_dead(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(10))
        held = await take(bus, stream, limit=6)
        await bus.settle(done=held[:1], retry=[(held[1], 60)], dead=held[2:4])
        assert await counts(bus, stream) == (5, 2, 2)

    async def test_depth_tells_streams_apart(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(2))
        await bus.publish(f"{stream}.other", events(3))
        depths = await bus.depth()
        assert (depths[stream].pending, depths[f"{stream}.other"].pending) == (2, 3)

    async def test_depth_shows_a_declared_stream_that_has_no_events(self, bus: EventBus, stream: str) -> None:
        await bus.declare(stream)
        assert (await bus.depth())[stream] == Depth(0, 0, 0, 0.0)

    async def test_depth_knows_no_stream_that_nobody_made(self, bus: EventBus, stream: str) -> None:
        await take(bus, stream)
        assert stream not in await bus.depth()

    async def test_an_event_that_waits_for_its_time_is_pending(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event(not_before=harness.now() + timedelta(hours=1)))
        assert await counts(harness.bus, stream) == (1, 0, 0)

    async def test_an_event_whose_lease_ended_is_pending(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, events(2))
        await take(harness.bus, stream, limit=1, lease=10)
        await take(harness.bus, stream, limit=1, lease=100)
        await harness.advance(11)
        assert await counts(harness.bus, stream) == (1, 1, 0)

    async def test_the_oldest_wait_grows_with_time(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        await harness.advance(100)
        await harness.bus.publish(stream, event())
        assert 100 <= (await depth_of(harness.bus, stream)).oldest_pending_seconds < 130
        await take(harness.bus, stream, limit=1)
        assert 0 <= (await depth_of(harness.bus, stream)).oldest_pending_seconds < 30

    async def test_nothing_claimable_is_no_wait(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        later = event(not_before=harness.now() + timedelta(hours=1))
        await bus.publish(stream, *events(4))
        await bus.publish(stream, later)
        held = await take(bus, stream)
        await bus.settle(done=held[:1], dead=held[1:2], retry=[(held[2], 10_000)])
        await harness.advance(100)
        assert (await depth_of(bus, stream)).oldest_pending_seconds == 0

    async def test_an_event_held_back_until_its_time_waits_from_then_on(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event(not_before=harness.now() + timedelta(seconds=100)))
        await harness.advance(160)
        assert 60 <= (await depth_of(harness.bus, stream)).oldest_pending_seconds < 90

    async def test_waiting_events_are_counted_by_type(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event("A"), event("A"), event("B"), event("C"), event("D"))
        [held] = await take(bus, stream, types=["C"])
        [dead] = await take(bus, stream, types=["D"])
        await bus.settle(dead=[dead])
        assert await bus.pending_types(stream) == {"A": 2, "B": 1}
        await bus.settle(retry=[(held, 60)])
        assert await bus.pending_types(stream) == {"A": 2, "B": 1, "C": 1}

    async def test_a_type_whose_lease_ended_is_counted_as_waiting(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event("A"))
        await take(harness.bus, stream, lease=10)
        assert await harness.bus.pending_types(stream) == {}
        await harness.advance(11)
        assert await harness.bus.pending_types(stream) == {"A": 1}

    async def test_an_empty_stream_has_no_waiting_types(self, bus: EventBus, stream: str) -> None:
        assert await bus.pending_types(stream) == {}

    async def test_dead_letters_come_newest_first(self, harness: Harness, stream: str) -> None:
        for name in ("first", "second", "third"):
            await bury(harness.bus, stream, event(event_id=name))
            await harness.advance(1)
        assert [letter.event_id for letter in await harness.bus.dead(stream)] == ["third", "second", "first"]
        assert [letter.event_id for letter in await harness.bus.dead(stream, limit=2)] == ["third", "second"]

    async def test_a_dead_letter_says_why_and_when(self, harness: Harness, stream: str) -> None:
        bus, sent = harness.bus, event()
        await bus.publish(stream, sent)
        await bus.settle(retry=[await take_one(bus, stream)])
        await bus.settle(dead=[(await take_one(bus, stream), "INVALID", "no such market")])
        [letter] = await bus.dead(stream)
        assert letter[:5] == (sent.event_id, sent, 2, "INVALID", "no such market")
        assert abs(letter.dead_at - harness.now()) < timedelta(seconds=30)

    async def test_dead_letters_are_those_of_the_stream(self, bus: EventBus, stream: str) -> None:
        await bury(bus, stream, event())
        assert await bus.dead(f"{stream}.other") == []

    async def test_asking_for_no_dead_letters_is_refused(self, bus: EventBus, stream: str) -> None:
        with pytest.raises(InvalidOption, match="1 or more"):
            await bus.dead(stream, limit=0)

    async def test_an_event_nobody_published_is_not_found(self, bus: EventBus, stream: str) -> None:
        assert await bus.find(f"{stream}-unknown") is None

    async def test_a_record_tells_the_whole_life_of_an_event(self, harness: Harness, stream: str) -> None:
        bus, sent = harness.bus, event()
        await bus.publish(stream, sent)
        waiting = await known(bus, sent.event_id)
        assert (waiting.stream, waiting.envelope, waiting.status, waiting.attempts) == (stream, sent, "PENDING", 0)
        assert (waiting.locked_by, waiting.locked_until, waiting.finished_at) == (None, None, None)
        assert abs(waiting.created_at - harness.now()) < timedelta(seconds=30)
        await harness.advance(100)
        held = await take_one(bus, stream)
        assert ((await known(bus, sent.event_id)).status, held.attempt) == ("PROCESSING", 1)
        await bus.settle(done=[held])
        done = await known(bus, sent.event_id)
        assert (done.status, done.attempts, done.locked_until) == ("DONE", 1, None)
        assert done.finished_at is not None
        assert timedelta(seconds=99) < done.finished_at - done.created_at < timedelta(seconds=130)

    async def test_a_record_of_a_dead_event_says_when_it_died(self, harness: Harness, stream: str) -> None:
        sent = event()
        await bury(harness.bus, stream, sent)
        record = await known(harness.bus, sent.event_id)
        assert record.finished_at is not None
        assert abs(record.finished_at - harness.now()) < timedelta(seconds=30)

    async def test_looking_changes_nothing(self, harness: Harness, stream: str) -> None:
        bus, several = harness.bus, events(3)
        await finish(bus, stream, event())
        await bury(bus, stream, event())
        await bus.publish(stream, several)
        for _ in range(2):
            await bus.depth()
            await bus.pending_types(stream)
            await bus.dead(stream)
            await bus.find(several[0].event_id)
            await bus.doctor()
        assert await counts(bus, stream) == (3, 0, 1)
        assert [(item.event_id, item.attempt) for item in await take(bus, stream)] == [
            (name, 1) for name in ids(several)
        ]

    async def test_the_doctor_finds_a_healthy_store_healthy(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        checks = await bus.doctor()
        assert [check for check in checks if check.level == "error"] == []
        assert all(check.name and check.message for check in checks)
