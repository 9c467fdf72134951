"""Operators: depth, dead letters, requeue and purge."""

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


class OperatorBehaviours(Behaviours):
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

    async def test_several_events_are_found_at_once_without_those_nobody_published(
        self, bus: EventBus, stream: str
    ) -> None:
        waiting, done = events(2)
        await finish(bus, stream, done)
        await bus.publish(stream, waiting)
        found = await bus.find_many([waiting.event_id, f"{stream}-unknown", done.event_id, waiting.event_id])
        assert {name: record.status for name, record in found.items()} == {
            waiting.event_id: "PENDING",
            done.event_id: "DONE",
        }
        assert found[waiting.event_id].envelope == waiting
        assert await bus.find_many([]) == {}

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


class RequeueBehaviours(Behaviours):
    """``requeue`` and ``purge``."""

    async def test_dead_events_are_requeued_by_id(self, bus: EventBus, stream: str) -> None:
        several = events(3)
        await bury(bus, stream, *several)
        assert await bus.requeue(stream, ids(several[:2])) == 2
        assert ids(await take(bus, stream)) == ids(several[:2])
        assert await counts(bus, stream) == (0, 2, 1)

    async def test_dead_events_are_requeued_by_type(self, bus: EventBus, stream: str) -> None:
        first, second = event("A"), event("B")
        await bury(bus, stream, first, second)
        assert await bus.requeue(stream, event_type="B") == 1
        assert ids(await take(bus, stream)) == [second.event_id]

    async def test_dead_events_are_requeued_by_error_code(self, bus: EventBus, stream: str) -> None:
        first, second = event(), event()
        await bury(bus, stream, first, code="HTTP_400")
        await bury(bus, stream, second, code="INVALID")
        assert await bus.requeue(stream, error_code="HTTP_400") == 1
        assert ids(await take(bus, stream)) == [first.event_id]

    async def test_conditions_of_a_requeue_narrow_each_other(self, bus: EventBus, stream: str) -> None:
        wanted, other_type, other_code, not_named = event("A"), event("B"), event("A"), event("A")
        await bury(bus, stream, wanted, other_type, not_named, code="HTTP_400")
        await bury(bus, stream, other_code, code="INVALID")
        named = ids([wanted, other_type, other_code])
        assert await bus.requeue(stream, named, event_type="A", error_code="HTTP_400") == 1
        assert await bus.requeue(stream, event_type="A", error_code="INVALID") == 1
        assert sorted(ids(await take(bus, stream))) == sorted(ids([wanted, other_code]))

    async def test_a_done_event_is_requeued_by_id_only(self, bus: EventBus, stream: str) -> None:
        done = event("A")
        await finish(bus, stream, done)
        assert await bus.requeue(stream, event_type="A") == 0
        assert await bus.requeue(stream, [done.event_id]) == 1
        assert ids(await take(bus, stream)) == [done.event_id]

    async def test_a_requeued_event_starts_over(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        for _ in range(3):
            await bus.settle(retry=[await take_one(bus, stream)])
        await bus.settle(dead=[await take_one(bus, stream)])
        await bus.requeue(stream, [event_id])
        record = await known(bus, event_id)
        assert (record.status, record.attempts, record.finished_at) == ("PENDING", 0, None)
        assert await bus.dead(stream) == []
        assert (await take_one(bus, stream, max_attempts=1)).attempt == 1

    async def test_an_event_dead_by_its_lease_can_be_requeued(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        await take(harness.bus, stream, lease=10, max_attempts=1)
        await harness.advance(11)
        assert await take(harness.bus, stream, max_attempts=1) == []
        assert await harness.bus.requeue(stream, error_code="LEASE_EXPIRED") == 1
        assert (await take_one(harness.bus, stream, max_attempts=1)).attempt == 1

    async def test_what_waits_or_is_held_cannot_be_requeued(self, bus: EventBus, stream: str) -> None:
        several = events(3)
        await bus.publish(stream, several)
        held, delayed = await take(bus, stream, limit=2)
        await bus.settle(retry=[(delayed, 60)])
        assert await bus.requeue(stream, ids(several)) == 0
        assert await counts(bus, stream) == (2, 1, 0)
        assert await bus.settle(done=[held]) == []

    async def test_unknown_ids_are_passed_over(self, bus: EventBus, stream: str) -> None:
        dead = event()
        await bury(bus, stream, dead)
        assert await bus.requeue(stream, ["nobody-knows", dead.event_id, dead.event_id]) == 1

    async def test_a_requeue_touches_its_stream_only(self, bus: EventBus, stream: str) -> None:
        once = event()
        for name in (stream, f"{stream}.other"):
            await bury(bus, name, once)
        assert await bus.requeue(stream, [once.event_id]) == 1
        assert await counts(bus, f"{stream}.other") == (0, 0, 1)

    async def test_a_requeue_of_everything_must_be_meant(self, bus: EventBus, stream: str) -> None:
        await bury(bus, stream, event())
        with pytest.raises(InvalidOption, match="everything=True"):
            await bus.requeue(stream)
        assert await bus.requeue(stream, []) == 0
        assert await counts(bus, stream) == (0, 0, 1)
        assert await bus.requeue(stream, everything=True) == 1
        assert await counts(bus, stream) == (1, 0, 0)

    async def test_purge_forgets_what_was_done_long_enough_ago(self, harness: Harness, stream: str) -> None:
        bus, old, recent = harness.bus, event(), event()
        await finish(bus, stream, old)
        await harness.advance(100)
        await finish(bus, stream, recent)
        assert await bus.purge(60, stream=stream) == 1
        assert await bus.find(old.event_id) is None
        assert (await known(bus, recent.event_id)).status == "DONE"

    async def test_age_counts_from_the_end_of_an_event_not_from_its_start(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        await harness.advance(1000)
        await harness.bus.settle(done=await take(harness.bus, stream))
        assert await harness.bus.purge(60, stream=stream) == 0
        await harness.advance(61)
        assert await harness.bus.purge(60, stream=stream) == 1

    async def test_a_forgotten_id_may_be_published_again(self, harness: Harness, stream: str) -> None:
        once = event()
        await finish(harness.bus, stream, once)
        await harness.advance(100)
        await harness.bus.purge(60, stream=stream)
        assert await harness.bus.publish(stream, once) == [once.event_id]
        assert (await take_one(harness.bus, stream)).attempt == 1

    async def test_dead_events_are_purged_only_when_asked(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bury(bus, stream, event())
        await harness.advance(100)
        assert await bus.purge(60, stream=stream) == 0
        assert await counts(bus, stream) == (0, 0, 1)
        assert await bus.purge(60, stream=stream, dead=True) == 1
        assert await counts(bus, stream) == (0, 0, 0)

    async def test_what_is_to_be_kept_is_not_purged(self, harness: Harness, stream: str) -> None:
        bus, kept, gone = harness.bus, event(), event()
        await finish(bus, stream, kept)
        await finish(bus, stream, gone)
        buried = event()
        await bury(bus, stream, buried)
        await harness.advance(100)
        assert await bus.purge(60, stream=stream, dead=True, keep=[kept.event_id, buried.event_id, "unknown"]) == 1
        assert await bus.find(gone.event_id) is None
        assert (await known(bus, kept.event_id)).status == "DONE"
        assert await counts(bus, stream) == (0, 0, 1)
        assert await bus.purge(60, stream=stream, dead=True) == 2

    async def test_only_what_is_named_is_purged(self, harness: Harness, stream: str) -> None:
        bus, kept, gone, waiting = harness.bus, event(), event(), event()
        await finish(bus, stream, kept)
        await finish(bus, stream, gone)
        buried = event()
        await bury(bus, stream, buried)
        await bus.publish(stream, waiting)
        await harness.advance(100)
        named = [gone.event_id, buried.event_id, waiting.event_id, "unknown"]
        assert await bus.purge(60, stream=stream, dead=True, only=[]) == 0
        assert await bus.purge(60, stream=stream, dead=True, only=named) == 2
        assert await bus.find(gone.event_id) is None
        assert (await known(bus, kept.event_id)).status == "DONE"
        assert await counts(bus, stream) == (1, 0, 0)

    async def test_what_is_not_finished_is_never_purged(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, events(4))
        held, delayed, _ = await take(bus, stream, limit=3, lease=10)
        await bus.settle(retry=[(delayed, 1_000_000)])
        await harness.advance(100_000)
        assert await bus.extend([held], 60) == []
        assert await bus.purge(0, stream=stream, dead=True) == 0
        assert await counts(bus, stream) == (3, 1, 0)

    async def test_purging_one_stream_leaves_the_others_alone(self, harness: Harness, stream: str) -> None:
        other = f"{stream}.other"
        mine, theirs = event(), event()
        await finish(harness.bus, stream, mine)
        await finish(harness.bus, other, theirs)
        await harness.advance(100)
        assert await harness.bus.purge(60, stream=stream) == 1
        assert (await known(harness.bus, theirs.event_id)).status == "DONE"
        assert await harness.bus.purge(60) >= 1
        assert await harness.bus.find(theirs.event_id) is None

    async def test_purging_the_future_is_refused(self, bus: EventBus, stream: str) -> None:
        with pytest.raises(InvalidOption, match="zero or more seconds"):
            await bus.purge(-1, stream=stream)
