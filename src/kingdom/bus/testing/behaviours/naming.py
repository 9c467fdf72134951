"""Claiming by name: only events with the ids given."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from kingdom.bus.errors import InvalidName
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, known, of, take, take_one
from kingdom.bus.testing.harness import Harness


class Naming(Behaviours):
    """``claim(ids=…)``."""

    async def test_only_events_that_are_named_are_claimed(self, bus: EventBus, stream: str) -> None:
        several = events(5)
        await bus.publish(stream, several)
        named = [several[3].event_id, several[1].event_id]
        held = await take(bus, stream, ids=named)
        assert ids(held) == [several[1].event_id, several[3].event_id]
        assert [item.attempt for item in held] == [1, 1]
        assert [item.envelope.payload for item in held] == [{"number": 1}, {"number": 3}]
        assert ids(await take(bus, stream)) == ids([several[0], several[2], several[4]])

    async def test_named_events_come_in_the_order_of_claims_and_up_to_the_limit(
        self, bus: EventBus, stream: str
    ) -> None:
        low, normal, high = (event(priority=priority) for priority in ("low", "normal", "high"))
        await bus.publish(stream, low, normal, high)
        assert ids(await take(bus, stream, limit=2, ids=ids([low, normal, high]))) == ids([high, normal])
        assert ids(await take(bus, stream, limit=2, ids=ids([low, normal, high]))) == [low.event_id]

    async def test_names_of_nothing_and_no_names_at_all_claim_nothing(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        assert await take(bus, stream, ids=["nobody", "nothing"]) == []
        assert await take(bus, stream, ids=[]) == []
        assert ids(await take(bus, stream, ids=["nobody", event_id, event_id])) == [event_id]

    async def test_ids_and_types_must_both_fit(self, bus: EventBus, stream: str) -> None:
        first, second = event("A"), event("B")
        await bus.publish(stream, first, second)
        assert ids(await take(bus, stream, ids=ids([first, second]), types=["B", "C"])) == [second.event_id]
        assert await take(bus, stream, ids=[first.event_id], types=["B"]) == []

    async def test_an_event_of_another_stream_is_not_meant(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        assert await take(bus, f"{stream}.other", ids=[event_id]) == []
        assert ids(await take(bus, stream, ids=[event_id])) == [event_id]

    async def test_what_waits_for_its_time_is_not_claimed_by_name_either(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        later, failed = event(not_before=harness.now() + timedelta(seconds=60)), event()
        await bus.publish(stream, later, failed)
        await bus.settle(retry=[(await take_one(bus, stream), 60)])
        assert await take(bus, stream, ids=ids([later, failed])) == []
        await harness.advance(61)
        assert sorted(ids(await take(bus, stream, ids=ids([later, failed])))) == sorted(ids([later, failed]))

    async def test_what_is_held_or_finished_is_not_claimed_by_name_either(self, bus: EventBus, stream: str) -> None:
        several = events(3)
        await bus.publish(stream, several)
        _, done, dead = await take(bus, stream)
        await bus.settle(done=[done], dead=[dead])
        assert await take(bus, stream, ids=ids(several)) == []

    async def test_an_event_whose_lease_ended_is_claimed_by_name(self, harness: Harness, stream: str) -> None:
        bus, several = harness.bus, events(3)
        await bus.publish(stream, several)
        late = await take(bus, stream, lease=10)
        await harness.advance(11)
        again = await take_one(bus, stream, ids=[several[1].event_id], worker="other")
        assert (again.event_id, again.attempt) == (several[1].event_id, 2)
        assert await bus.settle(done=late) == [late[1]]

    async def test_a_claim_by_name_buries_what_it_names_and_nothing_else(self, harness: Harness, stream: str) -> None:
        bus, several = harness.bus, events(3)
        await bus.publish(stream, several)
        await take(bus, stream, lease=10, limit=2)
        await harness.advance(11)
        spent, other, waiting = several
        assert ids(await take(bus, stream, ids=ids([spent, waiting]), max_attempts=1)) == [waiting.event_id]
        record = await known(bus, spent.event_id)
        assert (record.status, record.error_code) == ("DEAD", "LEASE_EXPIRED")
        assert (await known(bus, other.event_id)).status == "PROCESSING"
        assert await counts(bus, stream) == (1, 1, 1)

    async def test_in_an_ordered_stream_only_the_first_of_an_aggregate_can_be_named(
        self, harness: Harness, stream: str
    ) -> None:
        bus = harness.bus
        await bus.declare(stream, ordered=True)
        one, two = of("1", 3), of("2", 2)
        await bus.publish(stream, *one, *two)
        assert await take(bus, stream, ids=ids([one[1], one[2], two[1]])) == []
        assert ids(await take(bus, stream, ids=ids([*one, *two[1:]]), lease=10)) == [one[0].event_id]
        assert await take(bus, stream, ids=[one[1].event_id]) == []
        await harness.advance(11)
        assert await take(bus, stream, ids=[one[1].event_id]) == []
        head = await take_one(bus, stream, ids=ids(one))
        await bus.settle(done=[head])
        assert ids(await take(bus, stream, ids=ids(one))) == [one[1].event_id]

    @pytest.mark.parametrize("dead_head", ["go-on", "park"])
    async def test_a_dead_head_holds_back_what_is_named_only_when_the_stream_parks(
        self, bus: EventBus, stream: str, dead_head: str
    ) -> None:
        await bus.declare(stream, ordered=True, dead_head=dead_head)  # type: ignore[arg-type]
        head, follower = of("1", 2)
        await bus.publish(stream, head, follower)
        await bus.settle(dead=[await take_one(bus, stream, ids=[head.event_id])])
        claimed = ids(await take(bus, stream, ids=[follower.event_id]))
        assert claimed == ([follower.event_id] if dead_head == "go-on" else [])

    async def test_a_spent_head_that_is_named_sets_its_follower_free(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.declare(stream, ordered=True)
        head, follower = of("1", 2)
        await bus.publish(stream, head, follower)
        await take(bus, stream, lease=10)
        await harness.advance(11)
        assert ids(await take(bus, stream, ids=ids([head, follower]), max_attempts=1)) == [follower.event_id]
        assert (await known(bus, head.event_id)).status == "DEAD"

    async def test_many_can_be_named_among_many(self, bus: EventBus, stream: str) -> None:
        many = events(600)
        await bus.publish(stream, many)
        assert ids(await take(bus, stream, limit=1000, ids=ids(many[::2]))) == ids(many[::2])
        assert await counts(bus, stream) == (300, 300, 0)

    async def test_claims_by_name_at_once_never_share_an_event(self, harness: Harness, stream: str) -> None:
        buses, several = [harness.bus, await harness.open()], events(20)
        await harness.bus.publish(stream, several)
        claims = (take(bus, stream, ids=ids(several), worker=f"worker-{at}") for at, bus in enumerate(buses * 2))
        taken = [event_id for batch in await asyncio.gather(*claims) for event_id in ids(batch)]
        taken += ids(await take(harness.bus, stream))
        assert sorted(taken) == sorted(ids(several))

    async def test_a_name_that_cannot_be_one_is_refused(self, bus: EventBus, stream: str) -> None:
        with pytest.raises(InvalidName):
            await bus.claim(stream, worker="anyone", ids=["../etc"])
