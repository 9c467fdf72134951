"""Recalling: a worker that was restarted goes on with what it held."""
# ruff: noqa: D102 - the names of the tests are the documentation

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


class Recalling(Behaviours):
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
