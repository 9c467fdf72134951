"""Claiming: what is taken, in which order, by whom."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from kingdom.bus.errors import InvalidName, InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, known, take, take_one
from kingdom.bus.testing.harness import Harness


class Claiming(Behaviours):
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
