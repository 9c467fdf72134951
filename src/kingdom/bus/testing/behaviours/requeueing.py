"""What operators do: requeue and purge."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import pytest

from kingdom.bus.errors import InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import (
    Behaviours,
    bury,
    counts,
    event,
    events,
    finish,
    ids,
    known,
    take,
    take_one,
)
from kingdom.bus.testing.harness import Harness


class Requeueing(Behaviours):
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
