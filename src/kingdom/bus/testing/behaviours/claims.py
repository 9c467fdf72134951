"""Claims: what is taken, in which order, by whom; and what a peek shows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from kingdom.bus.delivery import Record
from kingdom.bus.errors import InvalidName, InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, known, of, take, take_one
from kingdom.bus.testing.harness import Harness


class ClaimBehaviours(Behaviours):
    """``claim``."""

    async def test_a_stream_nobody_published_to_is_empty(self, bus: EventBus, stream: str) -> None:
        assert await take(bus, stream) == []

    async def test_a_claim_takes_no_more_than_its_limit(self, bus: EventBus, stream: str) -> None:
        several = events(5)
        await bus.publish(stream, several)
        assert ids(await take(bus, stream, limit=2)) == ids(several[:2])
        assert ids(await take(bus, stream, limit=2)) == ids(several[2:4])
        assert ids(await take(bus, stream, limit=2)) == ids(several[4:])
        assert await take(bus, stream, limit=2) == []

    async def test_a_large_claim_takes_everything_in_one_call(self, bus: EventBus, stream: str) -> None:
        many = events(700)
        await bus.publish(stream, many)
        assert ids(await take(bus, stream, limit=1000)) == ids(many)

    async def test_events_come_in_publish_order(self, bus: EventBus, stream: str) -> None:
        several = events(9)
        for batch in (several[:1], several[1:4], several[4:5], several[5:]):
            await bus.publish(stream, batch)
        assert ids(await take(bus, stream)) == ids(several)

    async def test_publish_order_does_not_depend_on_ids(self, bus: EventBus, stream: str) -> None:
        backwards = [event(event_id=name) for name in ("z", "m", "a", "10", "9")]
        await bus.publish(stream, backwards)
        assert ids(await take(bus, stream)) == ["z", "m", "a", "10", "9"]

    async def test_higher_priorities_come_first_and_each_in_publish_order(self, bus: EventBus, stream: str) -> None:
        for turn in ("1", "2"):
            for priority in ("low", "normal", "high"):
                await bus.publish(stream, event(event_id=f"{priority}-{turn}", priority=priority))
        expected = ["high-1", "high-2", "normal-1", "normal-2", "low-1", "low-2"]
        assert ids(await take(bus, stream, limit=3)) + ids(await take(bus, stream)) == expected

    async def test_a_high_priority_comes_first_though_it_was_published_last(
        self, harness: Harness, stream: str
    ) -> None:
        await harness.bus.publish(stream, events(3))
        await take(harness.bus, stream, limit=1)
        await harness.advance(1)
        urgent = event(priority="high")
        await harness.bus.publish(stream, urgent)
        assert ids(await take(harness.bus, stream, limit=1)) == [urgent.event_id]

    async def test_of_one_priority_what_became_ready_first_comes_first(self, harness: Harness, stream: str) -> None:
        bus, now = harness.bus, harness.now()
        await bus.publish(stream, event(event_id="in-thirty", not_before=now + timedelta(seconds=30)))
        await harness.advance(10)
        await bus.publish(stream, event(event_id="at-ten"))
        await harness.advance(30)
        await bus.publish(stream, event(event_id="at-forty"))
        assert ids(await take(bus, stream)) == ["at-ten", "in-thirty", "at-forty"]

    async def test_a_retry_stands_behind_what_became_ready_before_it(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, event(event_id="failed"), event(event_id="waiting"))
        await harness.advance(1)
        await bus.settle(retry=[(item, 10) for item in await take(bus, stream, limit=1)])
        await harness.advance(20)
        await bus.publish(stream, event(event_id="late"))
        assert ids(await take(bus, stream)) == ["waiting", "failed", "late"]

    async def test_an_event_is_not_claimed_before_its_time(self, harness: Harness, stream: str) -> None:
        later = event(not_before=harness.now() + timedelta(seconds=60))
        await harness.bus.publish(stream, later)
        assert await take(harness.bus, stream) == []
        await harness.advance(50)
        assert await take(harness.bus, stream) == []
        await harness.advance(11)
        assert ids(await take(harness.bus, stream)) == [later.event_id]

    async def test_a_time_in_the_past_delays_nothing_and_gains_nothing(self, harness: Harness, stream: str) -> None:
        before = event(event_id="before")
        await harness.bus.publish(stream, before)
        await harness.advance(1)
        await harness.bus.publish(stream, event(event_id="overdue", not_before=harness.now() - timedelta(days=1)))
        assert ids(await take(harness.bus, stream)) == ["before", "overdue"]

    async def test_an_event_that_waits_for_its_time_holds_nobody_back(self, harness: Harness, stream: str) -> None:
        later = event(not_before=harness.now() + timedelta(hours=1), priority="high")
        ready = events(3)
        await harness.bus.publish(stream, later, *ready)
        assert ids(await take(harness.bus, stream)) == ids(ready)

    async def test_only_the_types_asked_for_are_claimed(self, bus: EventBus, stream: str) -> None:
        first, second, third = event("A"), event("B"), event("C")
        await bus.publish(stream, first, second, third)
        assert ids(await take(bus, stream, types=["C", "A"])) == ids([first, third])
        assert await take(bus, stream, types=["A"]) == []
        assert ids(await take(bus, stream)) == [second.event_id]

    async def test_events_of_types_nobody_asks_for_hold_nobody_back(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(300))
        wanted = event("Wanted")
        await bus.publish(stream, wanted)
        assert ids(await take(bus, stream, limit=1, types=["Wanted"])) == [wanted.event_id]

    async def test_no_types_mean_no_events(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        assert await take(bus, stream, types=[]) == []

    async def test_a_claim_takes_nothing_of_another_stream(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        for other in (f"{stream}.other", stream[:-1], f"{stream}+"):
            assert await take(bus, other) == []

    async def test_a_delivery_says_what_it_is(self, bus: EventBus, stream: str) -> None:
        sent = event()
        await bus.publish(stream, sent)
        delivery = await take_one(bus, stream, worker="order-executor@host:1")
        assert (delivery.stream, delivery.envelope, delivery.attempt, delivery.worker) == (
            stream,
            sent,
            1,
            "order-executor@host:1",
        )
        assert delivery.event_id == sent.event_id

    async def test_no_two_claims_of_an_event_share_a_token(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        tokens = set()
        for _ in range(3):
            delivery = await take_one(bus, stream)
            tokens.add(delivery.token)
            await bus.settle(retry=[delivery])
        assert len(tokens) == 3

    async def test_the_store_shows_who_holds_an_event_and_until_when(self, harness: Harness, stream: str) -> None:
        [event_id] = await harness.bus.publish(stream, event())
        await take(harness.bus, stream, worker="order-executor", lease=60)
        record = await known(harness.bus, event_id)
        assert (record.status, record.attempts) == ("PROCESSING", 1)
        assert "order-executor" in (record.locked_by or "")
        assert record.locked_until is not None
        assert timedelta(seconds=30) < record.locked_until - harness.now() <= timedelta(seconds=60)

    async def test_claims_at_once_never_share_an_event(self, harness: Harness, stream: str) -> None:
        buses = [harness.bus, await harness.open()]
        many = events(120)
        await harness.bus.publish(stream, many)
        taken: list[str] = []
        for _ in range(3):  # rounds of eight claims of seven: enough for all
            claims = (take(bus, stream, limit=7, worker=f"worker-{number}") for number, bus in enumerate(buses * 4))
            taken += [event_id for batch in await asyncio.gather(*claims) for event_id in ids(batch)]
        taken += ids(await take(harness.bus, stream, limit=120))
        assert sorted(taken) == sorted(ids(many))
        assert await counts(harness.bus, stream) == (0, 120, 0)

    async def test_a_claim_does_not_wait_for_another_bus_that_holds_events(self, harness: Harness, stream: str) -> None:
        several, other = events(4), await harness.open()
        await harness.bus.publish(stream, several)
        assert ids(await take(harness.bus, stream, limit=2)) == ids(several[:2])
        assert ids(await take(other, stream)) == ids(several[2:])

    @pytest.mark.parametrize(
        "options", [{"limit": 0}, {"lease": 0}, {"lease": -1}, {"lease": float("inf")}, {"max_attempts": 0}]
    )
    async def test_a_claim_out_of_range_is_refused(self, bus: EventBus, stream: str, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption, match=f"claim\\({next(iter(options))}"):
            await bus.claim(stream, worker="anyone", **options)

    async def test_a_bad_worker_name_is_refused(self, bus: EventBus, stream: str) -> None:
        with pytest.raises(InvalidName, match="worker name"):
            await bus.claim(stream, worker="a/b")


class NamedClaimBehaviours(Behaviours):
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


def names(records: list[Record]) -> list[str]:
    return [record.envelope.event_id for record in records]


class PeekBehaviours(Behaviours):
    """``peek``."""

    async def test_a_stream_nobody_published_to_shows_nothing(self, bus: EventBus, stream: str) -> None:
        assert await bus.peek(stream) == []

    async def test_what_waits_is_shown_whole_and_stays(self, harness: Harness, stream: str) -> None:
        bus, sent = harness.bus, event("Placed", payload={"n": 1}, aggregate_type="Order", aggregate_id="7")
        await bus.publish(stream, sent)
        for _ in range(2):
            [record] = await bus.peek(stream)
            assert (record.stream, record.envelope, record.status, record.attempts) == (stream, sent, "PENDING", 0)
            assert (record.locked_by, record.locked_until, record.finished_at) == (None, None, None)
            assert abs(record.created_at - harness.now()) < timedelta(seconds=30)
        assert await counts(bus, stream) == (1, 0, 0)
        assert (await take_one(bus, stream)).attempt == 1

    async def test_it_comes_in_the_order_of_claims_and_up_to_the_limit(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        for turn in ("1", "2"):
            for priority in ("low", "normal", "high"):
                await bus.publish(stream, event(turn, event_id=f"{priority}-{turn}", priority=priority))
        await bus.settle(retry=[(item, 10) for item in await take(bus, stream, limit=1)])
        await harness.advance(11)
        expected = ["high-2", "high-1", "normal-1", "normal-2", "low-1", "low-2"]
        assert names(await bus.peek(stream)) == expected
        assert names(await bus.peek(stream, limit=4)) == expected[:4]
        assert ids(await take(bus, stream)) == expected

    async def test_only_the_types_asked_for_are_shown(self, bus: EventBus, stream: str) -> None:
        first, second, third = event("A"), event("B"), event("C")
        await bus.publish(stream, first, second, third)
        assert names(await bus.peek(stream, types=["C", "A"])) == ids([first, third])
        assert await bus.peek(stream, types=["D"]) == []
        assert await bus.peek(stream, types=[]) == []

    async def test_what_cannot_be_claimed_is_not_shown(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        later = event(not_before=harness.now() + timedelta(seconds=60), priority="high")
        waiting = events(5)
        await bus.publish(stream, later, *waiting)
        _, done, dead, failed = await take(bus, stream, limit=4)
        await bus.settle(done=[done], dead=[dead], retry=[(failed, 60)])
        assert names(await bus.peek(stream)) == [waiting[4].event_id]

    async def test_an_event_whose_lease_ended_is_shown_at_its_old_place(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        first, second = events(2)
        await bus.publish(stream, first, second)
        await take(bus, stream, limit=1, lease=10, worker="king")
        await harness.advance(11)
        records = await bus.peek(stream)
        assert names(records) == ids([first, second])
        assert (records[0].status, records[0].attempts) == ("PROCESSING", 1)
        assert "king" in (records[0].locked_by or "")

    async def test_what_is_known_already_can_be_skipped(self, bus: EventBus, stream: str) -> None:
        several = events(6)
        await bus.publish(stream, several)
        skip = {several[0].event_id, several[3].event_id, "nobody"}
        assert names(await bus.peek(stream, limit=3, skip=skip)) == ids([several[1], several[2], several[4]])
        assert await bus.peek(stream, skip=ids(several)) == []

    async def test_what_stands_behind_thousands_that_are_skipped_is_found(self, bus: EventBus, stream: str) -> None:
        held_back, behind = events(2500), events(3, priority="low")
        await bus.publish(stream, held_back)
        await bus.publish(stream, behind)
        skip = set(ids(held_back))
        assert names(await bus.peek(stream, limit=2, skip=skip)) == ids(behind[:2])
        assert names(await bus.peek(stream, limit=9, skip=skip)) == ids(behind)

    async def test_more_than_a_thousand_can_be_seen_at_once(self, bus: EventBus, stream: str) -> None:
        many = events(1200)
        await bus.publish(stream, many)
        assert names(await bus.peek(stream, limit=1100)) == ids(many[:1100])

    async def test_many_types_are_shown_in_the_order_of_claims(self, bus: EventBus, stream: str) -> None:
        several = [event(f"Type{number % 150}") for number in range(300)]
        await bus.publish(stream, several)
        assert names(await bus.peek(stream, limit=200)) == ids(several[:200])

    async def test_of_an_ordered_stream_only_the_heads_are_shown(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.declare(stream, ordered=True)
        one, two = of("1", 3), of("2", 2, priority="high")
        await bus.publish(stream, *one, *two)
        assert names(await bus.peek(stream)) == ids([two[0], one[0]])
        assert names(await bus.peek(stream, skip=[two[0].event_id])) == [one[0].event_id]
        await take(bus, stream, limit=1, lease=10)
        assert names(await bus.peek(stream)) == [one[0].event_id]
        await harness.advance(11)
        assert names(await bus.peek(stream)) == ids([two[0], one[0]])

    @pytest.mark.parametrize("dead_head", ["go-on", "park"])
    async def test_behind_a_dead_head_nothing_is_shown_when_the_stream_parks(
        self, bus: EventBus, stream: str, dead_head: str
    ) -> None:
        await bus.declare(stream, ordered=True, dead_head=dead_head)  # type: ignore[arg-type]
        head, follower = of("1", 2)
        await bus.publish(stream, head, follower)
        await bus.settle(dead=[await take_one(bus, stream)])
        assert names(await bus.peek(stream)) == ([follower.event_id] if dead_head == "go-on" else [])

    async def test_what_is_seen_can_be_claimed_by_name(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(5))
        seen = names(await bus.peek(stream, limit=3))
        assert ids(await take(bus, stream, ids=seen[1:])) == seen[1:]
        assert names(await bus.peek(stream, limit=1)) == seen[:1]

    async def test_a_peek_at_nothing_is_refused(self, bus: EventBus, stream: str) -> None:
        with pytest.raises(InvalidOption, match=r"peek\(limit=0\)"):
            await bus.peek(stream, limit=0)
