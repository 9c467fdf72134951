"""Peeking: what a claim would take, without taking it."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

from datetime import timedelta

import pytest

from kingdom.bus.delivery import Record
from kingdom.bus.errors import InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, of, take, take_one
from kingdom.bus.testing.harness import Harness


def names(records: list[Record]) -> list[str]:
    """The ids of what was seen."""
    return [record.envelope.event_id for record in records]


class Peeking(Behaviours):
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
