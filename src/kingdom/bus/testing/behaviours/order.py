"""Ordered streams: one event of an aggregate at a time, in publish order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from kingdom.bus.errors import InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, bury, counts, event, events, finish, ids, of, take, take_one
from kingdom.bus.testing.harness import Harness
from kingdom.bus.transport import ShardedTransport


class OrderBehaviours(Behaviours):
    """``declare(ordered=True)``."""

    @pytest.fixture
    async def ordered(self, bus: EventBus, stream: str) -> str:
        """A stream declared as ordered."""
        await bus.declare(stream, ordered=True)
        return stream

    @pytest.fixture
    async def parked(self, bus: EventBus, stream: str) -> str:
        """An ordered stream whose aggregates stay parked behind a dead head."""
        await bus.declare(stream, ordered=True, dead_head="park")
        return stream

    async def test_a_plain_stream_gives_all_events_of_an_aggregate_at_once(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, of("1", 3))
        assert len(await take(bus, stream)) == 3

    async def test_one_event_of_an_aggregate_is_handled_at_a_time(self, bus: EventBus, ordered: str) -> None:
        orders = of("1", 3)
        await bus.publish(ordered, orders)
        for expected in orders:
            delivery = await take_one(bus, ordered)
            assert delivery.event_id == expected.event_id
            assert await take(bus, ordered) == []
            await bus.settle(done=[delivery])
        assert await take(bus, ordered) == []

    async def test_aggregates_do_not_wait_for_each_other(self, bus: EventBus, ordered: str) -> None:
        aggregates = [of(str(number), 3) for number in range(5)]
        await bus.publish(ordered, [item for turn in zip(*aggregates, strict=True) for item in turn])
        assert ids(await take(bus, ordered)) == ids(first for first, _, _ in aggregates)

    async def test_many_published_at_once_keep_the_order_of_their_aggregates(self, bus: EventBus, ordered: str) -> None:
        aggregates = [of(f"order-{number}", 3) for number in range(50)]
        await bus.publish(ordered, [item for turn in zip(*aggregates, strict=True) for item in turn])
        for turn in zip(*aggregates, strict=True):
            held = await take(bus, ordered)
            assert ids(held) == ids(turn)
            await bus.settle(done=held)

    @pytest.mark.parametrize("aggregate", [None, "7"])
    async def test_one_published_alone_and_many_at_once_are_of_one_aggregate(
        self, bus: EventBus, ordered: str, aggregate: str | None
    ) -> None:
        alone, many = events(1, aggregate_id=aggregate), events(150, aggregate_id=aggregate)
        await bus.publish(ordered, alone)
        await bus.publish(ordered, many)
        shards = _shards(bus) if aggregate is None else 1
        handled: list[str] = []
        while len(handled) < 151:
            held = await take(bus, ordered)
            assert 0 < len(held) <= shards
            handled += ids(held)
            await bus.settle(done=held)
        if shards == 1:
            assert handled == ids([*alone, *many])
        assert sorted(handled) == sorted(ids([*alone, *many]))

    async def test_a_claim_takes_no_more_heads_than_its_limit(self, bus: EventBus, ordered: str) -> None:
        aggregates = [of(str(number), 2) for number in range(5)]
        await bus.publish(ordered, [item for aggregate in aggregates for item in aggregate])
        assert ids(await take(bus, ordered, limit=2)) == ids(first for first, _ in aggregates[:2])
        assert ids(await take(bus, ordered)) == ids(first for first, _ in aggregates[2:])

    async def test_an_aggregate_is_its_type_and_its_id(self, bus: EventBus, ordered: str) -> None:
        order = event(aggregate_type="Order", aggregate_id="1")
        push = event(aggregate_type="Push", aggregate_id="1")
        bare = event(aggregate_id="1")
        await bus.publish(ordered, order, push, bare)
        assert ids(await take(bus, ordered)) == ids([order, push, bare])

    async def test_events_without_an_aggregate_are_one_aggregate(self, bus: EventBus, ordered: str) -> None:
        several = events(20)
        await bus.publish(ordered, several)
        first = await take(bus, ordered)
        assert 0 < len(first) <= _shards(bus)
        if len(first) == 1:
            assert ids(first) == [several[0].event_id]
        await bus.publish(ordered, of("1", 1))
        assert [item.envelope.aggregate_id for item in await take(bus, ordered)] == ["1"]  # the others wait
        await bus.settle(done=first)
        second = await take(bus, ordered)
        assert 0 < len(second) <= _shards(bus)
        assert not {*ids(first)} & {*ids(second)}

    async def test_a_head_that_waits_for_its_retry_holds_back_its_own_aggregate_only(
        self, harness: Harness, ordered: str
    ) -> None:
        bus = harness.bus
        waiting, other = of("1", 2), of("2", 2)
        await bus.publish(ordered, *waiting, *other)
        first, second = await take(bus, ordered)
        await bus.settle(retry=[(first, 60)], done=[second])
        assert ids(await take(bus, ordered)) == [other[1].event_id]
        await harness.advance(61)
        assert (await take_one(bus, ordered)).event_id == waiting[0].event_id

    async def test_a_head_whose_time_has_not_come_holds_back_its_aggregate(
        self, harness: Harness, ordered: str
    ) -> None:
        later, follower, other = (
            *of("1", not_before=harness.now() + timedelta(seconds=60)),
            *of("1"),
            *of("2"),
        )
        await harness.bus.publish(ordered, later, follower, other)
        assert ids(await take(harness.bus, ordered)) == [other.event_id]
        await harness.advance(61)
        assert ids(await take(harness.bus, ordered)) == [later.event_id]

    async def test_a_priority_goes_before_other_aggregates_but_not_before_its_own(
        self, bus: EventBus, ordered: str
    ) -> None:
        plain, urgent, other = of("1"), of("1", priority="high"), of("2", priority="high")
        await bus.publish(ordered, *plain, *urgent, *other)
        assert ids(await take(bus, ordered)) == ids([*other, *plain])

    async def test_asking_for_types_does_not_overtake(self, bus: EventBus, ordered: str) -> None:
        first, second = event("A", aggregate_id="1"), event("B", aggregate_id="1")
        other = event("B", aggregate_id="2")
        await bus.publish(ordered, first, second, other)
        assert ids(await take(bus, ordered, types=["B"])) == [other.event_id]
        await bus.settle(done=await take(bus, ordered, types=["A"]))
        assert ids(await take(bus, ordered, types=["B"])) == [second.event_id]

    async def test_a_head_whose_lease_ended_is_delivered_again_before_its_followers(
        self, harness: Harness, ordered: str
    ) -> None:
        orders = of("1", 2)
        await harness.bus.publish(ordered, orders)
        await take(harness.bus, ordered, lease=10)
        await harness.advance(11)
        delivery = await take_one(harness.bus, ordered)
        assert (delivery.event_id, delivery.attempt) == (orders[0].event_id, 2)

    async def test_a_released_head_goes_first_again(self, bus: EventBus, ordered: str) -> None:
        orders = of("1", 2)
        await bus.publish(ordered, orders)
        await bus.release(await take(bus, ordered))
        assert ids(await take(bus, ordered)) == [orders[0].event_id]

    async def test_when_its_head_dies_an_aggregate_goes_on(self, bus: EventBus, ordered: str) -> None:
        orders = of("1", 2)
        await bus.publish(ordered, orders)
        await bus.settle(dead=await take(bus, ordered))
        assert ids(await take(bus, ordered)) == [orders[1].event_id]

    async def test_when_its_head_dies_by_its_lease_an_aggregate_goes_on(self, harness: Harness, ordered: str) -> None:
        orders = of("1", 2)
        await harness.bus.publish(ordered, orders)
        await take(harness.bus, ordered, lease=10, max_attempts=1)
        await harness.advance(11)
        claimed = await take(harness.bus, ordered, max_attempts=1)
        claimed += await take(harness.bus, ordered, max_attempts=1)  # going DEAD may take a claim of its own
        assert ids(claimed) == [orders[1].event_id]
        assert await counts(harness.bus, ordered) == (0, 1, 1)

    async def test_a_parked_aggregate_waits_behind_its_dead_head(self, harness: Harness, parked: str) -> None:
        bus = harness.bus
        orders, other = of("1", 2), of("2", 2)
        await bus.publish(parked, *orders, *other)
        first, second = await take(bus, parked)
        await bus.settle(dead=[first], done=[second])
        assert ids(await take(bus, parked)) == [other[1].event_id]
        await harness.advance(1000)
        assert await take(bus, parked) == []

    async def test_a_parked_aggregate_starts_over_with_its_requeued_head(self, bus: EventBus, parked: str) -> None:
        orders = of("1", 3)
        await bus.publish(parked, orders)
        await bus.settle(dead=await take(bus, parked))
        assert await bus.requeue(parked, [orders[0].event_id]) == 1
        for expected in orders:
            delivery = await take_one(bus, parked)
            assert delivery.event_id == expected.event_id
            await bus.settle(done=[delivery])

    async def test_a_parked_aggregate_goes_on_when_its_head_is_purged(self, harness: Harness, parked: str) -> None:
        orders = of("1", 2)
        await harness.bus.publish(parked, orders)
        await harness.bus.settle(dead=await take(harness.bus, parked))
        await harness.advance(10)
        await harness.bus.purge(5, stream=parked, dead=True)
        assert ids(await take(harness.bus, parked)) == [orders[1].event_id]

    async def test_a_requeued_event_takes_its_old_place_before_its_followers(self, bus: EventBus, ordered: str) -> None:
        orders = of("1", 3)
        await bus.publish(ordered, orders)
        await bus.settle(dead=await take(bus, ordered))
        await bus.settle(done=await take(bus, ordered))
        await bus.requeue(ordered, [orders[0].event_id])
        assert ids(await take(bus, ordered)) == [orders[0].event_id]

    async def test_a_requeued_event_waits_while_a_follower_is_being_handled(self, bus: EventBus, ordered: str) -> None:
        orders = of("1", 2)
        await bus.publish(ordered, orders)
        await bus.settle(dead=await take(bus, ordered))
        follower = await take_one(bus, ordered)
        await bus.requeue(ordered, [orders[0].event_id])
        assert await take(bus, ordered) == []
        await bus.settle(retry=[follower])
        assert ids(await take(bus, ordered)) == [orders[0].event_id]

    async def test_a_done_event_requeued_takes_its_old_place(self, bus: EventBus, ordered: str) -> None:
        first, second = of("1", 2)
        await finish(bus, ordered, first)
        await bus.publish(ordered, second)
        await bus.requeue(ordered, [first.event_id])
        assert ids(await take(bus, ordered)) == [first.event_id]

    async def test_a_done_event_requeued_takes_its_place_in_what_the_stream_has_become(
        self, bus: EventBus, stream: str
    ) -> None:
        first, second = of("1", 2)
        await finish(bus, stream, first)
        await bus.declare(stream, ordered=True)
        await bus.publish(stream, second)
        await bus.requeue(stream, [first.event_id])
        for expected in (first, second):
            held = await take(bus, stream)
            assert ids(held) == [expected.event_id]
            await bus.settle(done=held)
        await bus.declare(stream, ordered=False)
        await bus.requeue(stream, [first.event_id, second.event_id])
        assert len(await take(bus, stream)) == 2

    async def test_a_stream_may_be_declared_when_it_has_events_already(self, bus: EventBus, stream: str) -> None:
        orders, other = of("1", 4), of("2", 2)
        await bus.publish(stream, *orders, *other)
        held = await take(bus, stream, limit=1)
        await bus.declare(stream, ordered=True)
        assert ids(await take(bus, stream)) == [other[0].event_id]
        await bus.publish(stream, of("2"))
        await bus.settle(done=held)
        assert ids(await take(bus, stream)) == [orders[1].event_id]

    async def test_events_that_are_held_when_the_stream_becomes_ordered_are_waited_for(
        self, harness: Harness, stream: str
    ) -> None:
        bus, orders = harness.bus, of("1", 4)
        await bus.publish(stream, orders)
        [first] = await take(bus, stream, limit=1)
        await take(bus, stream, limit=1, lease=100)
        await bus.declare(stream, ordered=True)
        await bus.settle(done=[first])
        assert await take(bus, stream) == []
        await harness.advance(101)
        assert ids(await take(bus, stream)) == [orders[1].event_id]

    async def test_a_dead_head_from_before_the_declaration_parks_its_aggregate(
        self, bus: EventBus, stream: str
    ) -> None:
        head, follower = of("1", 2)
        await bury(bus, stream, head)
        await bus.publish(stream, follower)
        await bus.declare(stream, ordered=True, dead_head="park")
        assert await take(bus, stream) == []
        await bus.declare(stream, ordered=True, dead_head="go-on")
        assert ids(await take(bus, stream)) == [follower.event_id]

    async def test_an_ordered_stream_can_be_declared_plain_again(self, bus: EventBus, ordered: str) -> None:
        orders = of("1", 3)
        await bus.publish(ordered, orders)
        await bus.declare(ordered, ordered=False)
        assert ids(await take(bus, ordered)) == ids(orders)

    async def test_every_bus_on_the_store_knows_the_declaration(self, harness: Harness, stream: str) -> None:
        before = await harness.open()
        assert await take(before, stream) == []
        await harness.bus.declare(stream, ordered=True)
        after = await harness.open()
        orders = of("1", 3)
        await before.publish(stream, orders)
        first = await take_one(after, stream)
        assert first.event_id == orders[0].event_id
        assert await take(before, stream) == []
        await after.settle(done=[first])
        assert ids(await take(before, stream)) == [orders[1].event_id]

    async def test_claims_at_once_never_hold_two_events_of_an_aggregate(self, harness: Harness, ordered: str) -> None:
        buses = [harness.bus, await harness.open()]
        aggregates = {str(number): ids(of(str(number), 6)) for number in range(4)}
        for turn in range(6):
            await harness.bus.publish(
                ordered, [of(name, event_id=names[turn])[0] for name, names in aggregates.items()]
            )
        handled: dict[str, list[str]] = defaultdict(list)
        for _ in range(24):  # at least one head is settled in every round
            claims = await asyncio.gather(*(take(bus, ordered, limit=3) for bus in buses * 2))
            held = [(bus, item) for bus, batch in zip(buses * 2, claims, strict=True) for item in batch]
            owners = [item.envelope.aggregate_id for _, item in held]
            assert len(owners) == len(set(owners))
            for bus, item in held:
                handled[str(item.envelope.aggregate_id)].append(item.event_id)
                await bus.settle(done=[item])
        assert handled == aggregates

    async def test_an_unknown_policy_for_dead_heads_is_refused(self, bus: EventBus, stream: str) -> None:
        unknown: Any = "stop"
        with pytest.raises(InvalidOption, match="'go-on' or 'park'"):
            await bus.declare(stream, ordered=True, dead_head=unknown)


def _shards(bus: EventBus) -> int:
    """Over how many shards the events without an aggregate are spread: they wait only for those in their own."""
    return bus.transport.shards if isinstance(bus.transport, ShardedTransport) else 1
