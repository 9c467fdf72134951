"""Publishing: what is accepted, what is left out, what is refused."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kingdom.bus.envelope import DEFAULT_MAX_BYTES, Envelope
from kingdom.bus.errors import InvalidEnvelope, InvalidName, TransactionMismatch
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, bury, counts, event, events, finish, ids, known, take
from kingdom.bus.testing.harness import Harness

BAD_STREAMS = ["", "a/b", "..", ".hidden", "a b", "größe", "x" * 101, "a\0b", "a\n"]
BAD_IDS = ["", "a/b", "..", ".hidden", "a b", "größe", "x" * 201, "a\0b", "a\n"]


class Publishing(Behaviours):
    """``publish``."""

    async def test_publish_returns_the_ids_it_accepted_in_the_order_given(self, bus: EventBus, stream: str) -> None:
        several = events(5)
        assert await bus.publish(stream, *several) == ids(several)

    async def test_publishing_nothing_writes_nothing(self, bus: EventBus, stream: str) -> None:
        assert await bus.publish(stream) == []
        assert await bus.publish(stream, []) == []
        assert await counts(bus, stream) == (0, 0, 0)

    async def test_a_collection_of_envelopes_is_published_like_separate_ones(self, bus: EventBus, stream: str) -> None:
        several = events(4)
        assert await bus.publish(stream, several[0], iter(several[1:3]), several[3]) == ids(several)
        assert ids(await take(bus, stream)) == ids(several)

    async def test_many_events_are_published_at_once(self, bus: EventBus, stream: str) -> None:
        many = events(1000)
        assert await bus.publish(stream, many) == ids(many)
        assert await counts(bus, stream) == (1000, 0, 0)

    async def test_of_many_published_at_once_those_that_are_there_are_left_out(
        self, bus: EventBus, stream: str
    ) -> None:
        many = events(500)
        await bus.publish(stream, many[100:110])
        twice = event(event_id=many[300].event_id, payload={"number": "another"})
        new = many[:100] + many[110:]
        assert await bus.publish(stream, [*many, twice]) == ids(new)
        assert await counts(bus, stream) == (500, 0, 0)
        assert (await known(bus, many[300].event_id)).envelope.payload == {"number": 300}

    async def test_many_published_at_once_have_what_was_said_of_each(self, bus: EventBus, stream: str) -> None:
        many = events(150)
        first = event(priority="high", aggregate_type="Order", aggregate_id="7", attributes={"source": "shop"})
        await bus.publish(stream, [*many, first])
        [taken] = await take(bus, stream, limit=1)
        assert taken.envelope == first

    async def test_of_many_published_at_once_some_may_have_to_wait(self, bus: EventBus, stream: str) -> None:
        many, later = events(150), event(not_before=datetime.now(UTC) + timedelta(days=1))
        assert await bus.publish(stream, [later, *many]) == ids([later, *many])
        assert ids(await take(bus, stream, limit=200)) == ids(many)

    async def test_of_many_published_at_once_none_is_stored_when_one_is_refused(
        self, bus: EventBus, stream: str
    ) -> None:
        with pytest.raises(InvalidEnvelope, match=r"payload\.when"):
            await bus.publish(stream, [*events(450), event(payload={"when": object()}), *events(50)])
        assert await counts(bus, stream) == (0, 0, 0)

    async def test_concurrent_publishers_lose_nothing(self, bus: EventBus, stream: str) -> None:
        batches = [events(3) for _ in range(40)]
        accepted = await asyncio.gather(*(bus.publish(stream, batch) for batch in batches))
        assert accepted == [ids(batch) for batch in batches]
        claimed = ids(await take(bus, stream, limit=200))
        assert sorted(claimed) == sorted(item for batch in batches for item in ids(batch))

    async def test_what_one_bus_published_another_finds_at_once(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        [event_id] = await harness.bus.publish(stream, event())
        assert (await known(other, event_id)).status == "PENDING"
        assert ids(await take(other, stream)) == [event_id]

    async def test_an_id_twice_in_one_call_is_one_event_and_the_first_counts(self, bus: EventBus, stream: str) -> None:
        first, second = event(payload={"n": 1}, event_id="twice"), event(payload={"n": 2}, event_id="twice")
        assert await bus.publish(stream, first, second) == ["twice"]
        assert [item.envelope.payload for item in await take(bus, stream)] == [{"n": 1}]

    async def test_an_id_published_before_is_left_out_and_the_first_one_stays(self, bus: EventBus, stream: str) -> None:
        first, new = event(payload={"n": 1}), event()
        await bus.publish(stream, first)
        again = Envelope(type="Other", payload={"n": 2}, event_id=first.event_id)
        assert await bus.publish(stream, again, new) == [new.event_id]
        assert [(item.envelope.type, item.event_id) for item in await take(bus, stream)] == [
            ("Happened", first.event_id),
            ("Happened", new.event_id),
        ]

    async def test_an_id_is_left_out_while_it_is_being_processed(self, bus: EventBus, stream: str) -> None:
        once = event()
        await bus.publish(stream, once)
        await take(bus, stream)
        assert await bus.publish(stream, once) == []
        assert await counts(bus, stream) == (0, 1, 0)

    async def test_an_id_is_left_out_while_it_waits_for_its_retry(self, bus: EventBus, stream: str) -> None:
        once = event()
        await bus.publish(stream, once)
        await bus.settle(retry=[(item, 60) for item in await take(bus, stream)])
        assert await bus.publish(stream, once) == []
        assert await take(bus, stream) == []

    async def test_an_id_is_left_out_after_it_is_done(self, bus: EventBus, stream: str) -> None:
        once = event()
        await finish(bus, stream, once)
        assert await bus.publish(stream, once) == []
        assert await take(bus, stream) == []

    async def test_an_id_is_left_out_after_it_is_dead(self, bus: EventBus, stream: str) -> None:
        once = event()
        await bury(bus, stream, once)
        assert await bus.publish(stream, once) == []
        assert await counts(bus, stream) == (0, 0, 1)

    async def test_the_same_id_in_two_streams_is_two_events(self, bus: EventBus, stream: str) -> None:
        once, other = event(), f"{stream}.other"
        assert await bus.publish(stream, once) == [once.event_id]
        assert await bus.publish(other, once) == [once.event_id]
        await bus.settle(done=await take(bus, stream))
        assert ids(await take(bus, other)) == [once.event_id]

    async def test_of_two_buses_that_publish_the_same_ids_at_once_one_is_told_for_each(
        self, harness: Harness, stream: str
    ) -> None:
        several, other = events(30), await harness.open()
        both = await asyncio.gather(
            *(bus.publish(stream, item) for item in several for bus in (harness.bus, other)),
        )
        assert sorted(event_id for accepted in both for event_id in accepted) == sorted(ids(several))
        assert len(await take(harness.bus, stream)) == 30

    async def test_all_envelopes_of_a_call_are_stored_or_none(self, bus: EventBus, stream: str) -> None:
        good, bad = events(3), event(payload={"when": object()})
        with pytest.raises(InvalidEnvelope, match=r"payload\.when"):
            await bus.publish(stream, *good, bad)
        assert await counts(bus, stream) == (0, 0, 0)
        assert await bus.publish(stream, good) == ids(good)

    async def test_an_event_over_the_size_limit_is_refused_with_the_whole_call(
        self, bus: EventBus, stream: str
    ) -> None:
        huge = event(payload={"text": "x" * DEFAULT_MAX_BYTES})
        with pytest.raises(InvalidEnvelope, match="the limit is"):
            await bus.publish(stream, event(), huge)
        assert await take(bus, stream) == []

    async def test_a_transaction_that_is_none_is_refused_and_nothing_published(
        self, bus: EventBus, stream: str
    ) -> None:
        with pytest.raises(TransactionMismatch):
            await bus.publish(stream, event(), tx=object())
        assert await counts(bus, stream) == (0, 0, 0)

    async def test_what_is_no_envelope_is_refused(self, bus: EventBus, stream: str) -> None:
        wrong: Any
        for wrong in ({"type": "Happened"}, "Happened", [event(), "Happened"], 7):
            with pytest.raises(InvalidEnvelope, match="publish takes Envelope objects, not"):
                await bus.publish(stream, wrong)
        assert await counts(bus, stream) == (0, 0, 0)

    async def test_a_bad_stream_name_is_refused_everywhere(self, bus: EventBus) -> None:
        for name in BAD_STREAMS:
            for call in (
                bus.publish(name, event()),
                bus.declare(name, ordered=True),
                bus.claim(name, worker="anyone"),
                bus.dead(name),
                bus.pending_types(name),
                bus.requeue(name, ["some"]),
                bus.purge(0, stream=name),
            ):
                with pytest.raises(InvalidName, match="stream name"):
                    await call

    async def test_a_bad_event_id_is_refused_everywhere(self, bus: EventBus, stream: str) -> None:
        for name in BAD_IDS:
            with pytest.raises(InvalidEnvelope, match="event id"):
                event(event_id=name)
            for call in (bus.find(name), bus.requeue(stream, [name])):
                with pytest.raises(InvalidName, match="event id"):
                    await call
