"""Leases: how they end, how they are renewed, released and recalled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kingdom.bus.errors import InvalidName, InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import (
    Behaviours,
    counts,
    event,
    events,
    finish,
    ids,
    known,
    of,
    take,
    take_one,
)
from kingdom.bus.testing.harness import Harness


class LeaseBehaviours(Behaviours):
    """Lease expiry, ``extend`` and ``release``."""

    async def test_an_event_is_held_until_its_lease_ends(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        await take_one(harness.bus, stream, lease=60)
        await harness.advance(55)
        assert await take(harness.bus, stream) == []
        await harness.advance(5)
        assert (await take_one(harness.bus, stream)).attempt == 2

    async def test_a_lease_may_be_a_timedelta(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        await take_one(harness.bus, stream, lease=timedelta(minutes=2))
        await harness.advance(100)
        assert await take(harness.bus, stream) == []
        await harness.advance(21)
        assert len(await take(harness.bus, stream)) == 1

    async def test_the_events_of_a_dead_worker_are_finished_by_another(self, harness: Harness, stream: str) -> None:
        several, other = events(20), await harness.open()
        await harness.bus.publish(stream, several)
        await take(harness.bus, stream, limit=15, lease=30)  # a worker that dies
        assert len(await take(other, stream)) == 5
        await harness.advance(31)
        inherited = await take(other, stream)
        assert ids(inherited) == ids(several[:15])
        assert {delivery.attempt for delivery in inherited} == {2}

    async def test_an_event_whose_lease_ended_keeps_its_place(self, harness: Harness, stream: str) -> None:
        several = events(3)
        await harness.bus.publish(stream, several)
        await take(harness.bus, stream, limit=1, lease=10)
        await harness.advance(11)
        assert ids(await take(harness.bus, stream)) == ids(several)

    async def test_only_the_types_asked_for_are_taken_over(self, harness: Harness, stream: str) -> None:
        first, second = event("A"), event("B")
        await harness.bus.publish(stream, first, second)
        await take(harness.bus, stream, lease=10)
        await harness.advance(11)
        assert ids(await take(harness.bus, stream, types=["B"])) == [second.event_id]

    async def test_a_lease_that_ends_on_the_last_attempt_is_the_end_of_the_event(
        self, harness: Harness, stream: str
    ) -> None:
        bus = harness.bus
        [event_id] = await bus.publish(stream, event())
        for attempt in (1, 2, 3):
            assert (await take_one(bus, stream, lease=10, max_attempts=3)).attempt == attempt
            await harness.advance(11)
        assert await take(bus, stream, max_attempts=3) == []
        [letter] = await bus.dead(stream)
        assert (letter.event_id, letter.attempts, letter.error_code) == (event_id, 3, "LEASE_EXPIRED")
        assert letter.error_message
        assert await counts(bus, stream) == (0, 0, 1)

    async def test_what_died_on_its_last_attempt_cannot_be_settled_by_its_worker(
        self, harness: Harness, stream: str
    ) -> None:
        await harness.bus.publish(stream, event())
        late = await take_one(harness.bus, stream, lease=10, max_attempts=1)
        await harness.advance(11)
        assert await take(harness.bus, stream, max_attempts=1) == []
        assert await harness.bus.settle(done=[late]) == [late]
        assert await harness.bus.extend([late], 10) == [late]
        assert await harness.bus.release([late]) == [late]
        assert await counts(harness.bus, stream) == (0, 0, 1)

    async def test_a_claim_for_one_looks_behind_those_whose_last_attempt_ended(
        self, harness: Harness, stream: str
    ) -> None:
        bus = harness.bus
        await bus.publish(stream, events(12))
        assert len(await take(bus, stream, limit=12, lease=10)) == 12
        await harness.advance(11)
        waiting = event()
        await bus.publish(stream, waiting)
        assert ids(await take(bus, stream, limit=1, max_attempts=1)) == [waiting.event_id]
        assert await take(bus, stream, limit=1, max_attempts=1) == []
        assert len(await bus.dead(stream)) == 12

    async def test_a_poison_event_takes_nothing_else_with_it(self, harness: Harness, stream: str) -> None:
        poison, good = event("Poison"), events(3)
        await harness.bus.publish(stream, poison)
        await take(harness.bus, stream, lease=10, max_attempts=1)
        await harness.advance(11)
        await harness.bus.publish(stream, good)
        assert ids(await take(harness.bus, stream, max_attempts=1)) == ids(good)
        assert [letter.event_id for letter in await harness.bus.dead(stream)] == [poison.event_id]

    async def test_extending_keeps_an_event_held(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, event())
        delivery = await take_one(bus, stream, lease=60)
        for _ in range(3):
            await harness.advance(40)
            assert await bus.extend([delivery], 60) == []
        await harness.advance(40)
        assert await take(bus, stream) == []
        assert await bus.settle(done=[delivery]) == []

    async def test_an_extended_lease_ends_that_long_from_now(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, event())
        delivery = await take_one(bus, stream)
        assert await bus.extend([delivery], 30) == []
        await harness.advance(31)
        assert (await take_one(bus, stream)).attempt == 2

    async def test_extending_counts_no_attempt(self, harness: Harness, stream: str) -> None:
        [event_id] = await harness.bus.publish(stream, event())
        delivery = await take_one(harness.bus, stream)
        await harness.bus.extend([delivery], 60)
        assert (await known(harness.bus, event_id)).attempts == 1

    async def test_extending_tells_which_leases_were_lost(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, events(3))
        [lost] = await take(bus, stream, limit=1, lease=10)
        kept, settled = await take(bus, stream, lease=100)
        await harness.advance(11)
        holder = await take_one(bus, stream, worker="other", lease=30)
        await bus.settle(done=[settled])
        assert sorted(ids(await bus.extend([lost, kept, settled], 1000))) == sorted(ids([lost, settled]))
        await harness.advance(200)
        assert ids(await take(bus, stream)) == [holder.event_id]

    async def test_a_lease_that_ended_can_be_extended_while_nobody_else_took_the_event(
        self, harness: Harness, stream: str
    ) -> None:
        await harness.bus.publish(stream, event())
        delivery = await take_one(harness.bus, stream, lease=10)
        await harness.advance(11)
        assert await harness.bus.extend([delivery], 60) == []
        assert await take(harness.bus, stream) == []

    async def test_extending_nothing_loses_nothing(self, bus: EventBus) -> None:
        assert await bus.extend([], 30) == []

    async def test_extending_by_nothing_is_refused(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        with pytest.raises(InvalidOption, match="extend"):
            await bus.extend(await take(bus, stream), 0)

    async def test_a_released_event_is_claimable_at_once_and_unharmed(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        assert await bus.release([await take_one(bus, stream)]) == []
        record = await known(bus, event_id)
        assert (record.status, record.attempts, record.locked_by) == ("PENDING", 0, None)
        assert (await take_one(bus, stream)).attempt == 1

    async def test_a_release_takes_back_one_attempt_only(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        await bus.settle(retry=[await take_one(bus, stream)])
        await bus.release([await take_one(bus, stream)])
        assert (await take_one(bus, stream)).attempt == 2

    async def test_released_events_keep_their_place(self, harness: Harness, stream: str) -> None:
        several = events(4)
        await harness.bus.publish(stream, several)
        held = await take(harness.bus, stream, limit=2)
        await harness.advance(5)
        await harness.bus.release(held)
        assert ids(await take(harness.bus, stream)) == ids(several)

    async def test_what_one_bus_released_another_can_claim(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        [event_id] = await harness.bus.publish(stream, event())
        assert await take(other, stream, types=["Nothing"]) == []
        await harness.bus.release(await take(harness.bus, stream))
        assert ids(await take(other, stream)) == [event_id]

    async def test_who_lost_the_lease_cannot_release(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        [event_id] = await bus.publish(stream, event())
        late = await take_one(bus, stream, lease=10)
        await harness.advance(11)
        holder = await take_one(bus, stream, worker="other")
        assert await bus.release([late]) == [late]
        assert (await known(bus, event_id)).attempts == 2
        assert await bus.settle(done=[holder]) == []

    async def test_what_was_released_or_settled_is_no_longer_held(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(2))
        released, settled = await take(bus, stream)
        await bus.release([released])
        await bus.settle(done=[settled])
        assert sorted(ids(await bus.release([released, settled]))) == sorted(ids([released, settled]))
        assert await bus.settle(done=[released]) == [released]
        assert await bus.extend([released], 60) == [released]
        assert await counts(bus, stream) == (1, 0, 0)

    async def test_releasing_nothing_loses_nothing(self, bus: EventBus) -> None:
        assert await bus.release([]) == []


class RecallBehaviours(Behaviours):
    """``recall``."""

    async def test_a_worker_gets_back_what_it_holds_as_it_was(self, harness: Harness, stream: str) -> None:
        several, again = events(3), await harness.open()
        await harness.bus.publish(stream, several)
        held = await take(harness.bus, stream, worker="king")
        back = await again.recall(stream, worker="king", lease=60)
        assert ids(back) == ids(several)
        assert [(item.envelope, item.attempt, item.worker, item.stream) for item in back] == [
            (item.envelope, 1, "king", stream) for item in held
        ]
        assert await counts(again, stream) == (0, 3, 0)
        assert await again.settle(done=back) == []

    async def test_the_former_self_can_do_nothing_any_more(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, events(3))
        former = await take(bus, stream, worker="king")
        back = await bus.recall(stream, worker="king")
        assert {item.token for item in former}.isdisjoint(item.token for item in back)
        assert await bus.extend(former, 60) == former
        assert await bus.release(former) == former
        assert await bus.settle(done=former[:1], retry=former[1:2], dead=former[2:]) == former
        assert await bus.settle(done=back) == []

    async def test_leases_begin_anew(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        [event_id] = await bus.publish(stream, event())
        await take(bus, stream, worker="king", lease=10)
        await harness.advance(8)
        await bus.recall(stream, worker="king", lease=60)
        record = await known(bus, event_id)
        assert (record.status, record.attempts) == ("PROCESSING", 1)
        assert "king" in (record.locked_by or "")
        assert record.locked_until is not None
        assert timedelta(seconds=30) < record.locked_until - harness.now() <= timedelta(seconds=60)
        await harness.advance(50)
        assert await take(bus, stream) == []
        await harness.advance(11)
        assert (await take_one(bus, stream)).attempt == 2

    async def test_a_lease_that_ended_is_recalled_if_nobody_else_has_claimed(
        self, harness: Harness, stream: str
    ) -> None:
        bus = harness.bus
        first, second = events(2)
        await bus.publish(stream, first, second)
        await take(bus, stream, worker="king", lease=10)
        await harness.advance(11)
        other = await take_one(bus, stream, worker="other", ids=[first.event_id])
        [back] = await bus.recall(stream, worker="king", lease=60)
        assert (back.event_id, back.attempt) == (second.event_id, 1)
        assert await take(bus, stream) == []
        assert await bus.settle(done=[back, other]) == []

    async def test_attempts_are_not_counted_and_never_run_out(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, event())
        await take(bus, stream, worker="king", lease=10, max_attempts=1)
        for _ in range(3):
            await harness.advance(11)
            [back] = await bus.recall(stream, worker="king", lease=10)
            assert back.attempt == 1
        assert await bus.settle(done=[back]) == []

    async def test_what_comes_back_comes_in_the_order_of_claims(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        low, normal = event(priority="low"), event()
        await bus.publish(stream, low, normal)
        assert ids(await take(bus, stream, worker="king", ids=[low.event_id])) == [low.event_id]
        await take(bus, stream, worker="king")
        await harness.advance(1)
        high = event(priority="high")
        await bus.publish(stream, high)
        await take(bus, stream, worker="king")
        assert ids(await bus.recall(stream, worker="king")) == ids([high, normal, low])

    async def test_only_the_worker_of_that_very_name_is_meant(self, bus: EventBus, stream: str) -> None:
        names = ["king", "king2", "kin", "KING", "k_ng", "king@host:1"]
        several = events(len(names))
        await bus.publish(stream, several)
        for name, item in zip(names, several, strict=True):
            await take(bus, stream, worker=name, ids=[item.event_id])
        assert ids(await bus.recall(stream, worker="king")) == [several[0].event_id]
        assert ids(await bus.recall(stream, worker="k_ng")) == [several[4].event_id]
        assert await bus.recall(stream, worker="nobody") == []

    async def test_another_stream_is_left_alone(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        held = await take(bus, stream, worker="king")
        assert await bus.recall(f"{stream}.other", worker="king") == []
        assert await bus.settle(done=held) == []

    async def test_what_is_settled_or_given_back_is_not_recalled(self, bus: EventBus, stream: str) -> None:
        await finish(bus, stream, event())
        await bus.publish(stream, events(4))
        done, dead, later, free = await take(bus, stream, worker="king")
        await bus.settle(done=[done], dead=[dead], retry=[(later, 60)])
        await bus.release([free])
        assert await bus.recall(stream, worker="king") == []
        assert await counts(bus, stream) == (2, 0, 1)

    async def test_in_an_ordered_stream_the_aggregate_stays_held(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.declare(stream, ordered=True)
        one, two = of("1", 2), of("2", 2)
        await bus.publish(stream, *one, *two)
        assert ids(await take(bus, stream, worker="king", lease=10)) == ids([one[0], two[0]])
        await harness.advance(11)
        back = await bus.recall(stream, worker="king", lease=60)
        assert ids(back) == ids([one[0], two[0]])
        assert await take(bus, stream) == []
        await bus.settle(done=back[:1])
        assert ids(await take(bus, stream)) == [one[1].event_id]

    async def test_many_come_back_at_once(self, bus: EventBus, stream: str) -> None:
        many = events(300)
        await bus.publish(stream, many)
        await take(bus, stream, worker="king", limit=200)
        await take(bus, stream, worker="king", limit=50)
        assert ids(await bus.recall(stream, worker="king")) == ids(many[:250])

    async def test_a_recall_out_of_range_is_refused(self, bus: EventBus, stream: str) -> None:
        with pytest.raises(InvalidOption, match=r"recall\(lease"):
            await bus.recall(stream, worker="king", lease=0)
        with pytest.raises(InvalidName, match="worker name"):
            await bus.recall(stream, worker="a/b")
