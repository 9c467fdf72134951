"""Publishing: what is accepted, what is read back, who is woken, what outlives the bus."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kingdom.bus.envelope import DEFAULT_MAX_BYTES, Envelope
from kingdom.bus.errors import InvalidEnvelope, InvalidName, TransactionMismatch
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
    of,
    take,
    take_one,
)
from kingdom.bus.testing.harness import Harness

BAD_STREAMS = ["", "a/b", "..", ".hidden", "a b", "größe", "x" * 101, "a\0b", "a\n"]
BAD_IDS = ["", "a/b", "..", ".hidden", "a b", "größe", "x" * 201, "a\0b", "a\n"]


class PublishBehaviours(Behaviours):
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


class RoundTripBehaviours(Behaviours):
    """A delivered envelope equals the published one."""

    async def test_every_field_of_an_envelope_survives(self, bus: EventBus, stream: str) -> None:
        sent = Envelope(
            type="CreateOrderAttempt",
            payload={"orderAttemptId": 7},
            aggregate_type="OrderAttempt",
            aggregate_id="7",
            attributes={"market": "KRW-BTC", "retryable": True, "limits": {"max": [1, 2]}},
            trace_id="trace-1",
            occurred_at=datetime(2026, 2, 17, 1, 2, 3, 456000, tzinfo=UTC),
            schema_version=3,
            priority="high",
        )
        await bus.publish(stream, sent)
        assert (await take_one(bus, stream)).envelope == sent
        assert (await known(bus, sent.event_id)).envelope == sent

    async def test_a_dead_letter_carries_the_whole_envelope(self, bus: EventBus, stream: str) -> None:
        sent = event(aggregate_type="Order", aggregate_id="9", attributes={"market": "KRW-ETH"}, priority="low")
        await bury(bus, stream, sent)
        [letter] = await bus.dead(stream)
        assert letter.envelope == sent

    async def test_an_event_without_anything_optional_survives(self, bus: EventBus, stream: str) -> None:
        sent = Envelope(type="Bare")
        await bus.publish(stream, sent)
        received = (await take_one(bus, stream)).envelope
        assert received == sent
        assert received.aggregate_type is None
        assert received.aggregate_id is None
        assert received.trace_id == sent.event_id

    async def test_a_time_in_another_zone_is_the_same_moment(self, bus: EventBus, stream: str) -> None:
        seoul = datetime(2026, 2, 17, 9, 0, tzinfo=timezone(timedelta(hours=9)))
        await bus.publish(stream, event(occurred_at=seoul))
        assert (await take_one(bus, stream)).envelope.occurred_at == seoul

    @pytest.mark.parametrize(
        "payload",
        [
            {},
            {"deep": {"er": [{"and": ["deeper", {"still": [[[1]]]}]}, []]}},
            {"whole": 2**53, "negative": -1, "fraction": 0.1, "yes": True, "no": False, "nothing": None},
            {"": "empty key", 'quote"s': "a\\b", "control": "\t\n\r\x01\x7f", "slash": "</script>"},
            {"korean": "주문이 접수되었습니다", "emoji": "👑🏰", "combining": "e\u0301", "키": "값", "line": "\u2028"},
            {"eventId": "not the id", "type": "not the type", "payload": {"payload": 1}},
        ],
        ids=["empty", "nested", "scalars", "escapes", "unicode", "names of the envelope"],
    )
    async def test_a_payload_survives(self, bus: EventBus, stream: str, payload: dict[str, Any]) -> None:
        await bus.publish(stream, event(payload=payload))
        assert (await take_one(bus, stream)).envelope.payload == payload

    async def test_a_large_payload_under_the_limit_survives(self, bus: EventBus, stream: str) -> None:
        payload = {"text": "0123456789abcdef" * 32_000, "words": ["왕국"] * 10_000}
        await bus.publish(stream, event(payload=payload))
        assert (await take_one(bus, stream)).envelope.payload == payload

    async def test_the_longest_names_are_accepted(self, bus: EventBus, stream: str) -> None:
        long_stream = stream.ljust(100, "s")
        longest = event("t" * 200, event_id="i" * 200, aggregate_type="a" * 200, aggregate_id="b" * 200)
        await bus.publish(long_stream, longest)
        assert [item.envelope for item in await take(bus, long_stream, worker="w" * 200)] == [longest]

    async def test_every_character_allowed_in_a_name_is_accepted(self, bus: EventBus, stream: str) -> None:
        name = "AZaz09._:@+-"
        await bus.publish(f"{stream}{name}", event(event_id=name))
        assert ids(await take(bus, f"{stream}{name}", worker=name)) == [name]

    async def test_types_and_aggregates_are_free_text(self, bus: EventBus, stream: str) -> None:
        sent = event("주문/created 'x' %s", aggregate_type="a/../b", aggregate_id='한국:1 "quoted"')
        await bus.publish(stream, sent)
        assert [item.envelope for item in await take(bus, stream, types=["주문/created 'x' %s"])] == [sent]
        assert (await known(bus, sent.event_id)).envelope == sent

    async def test_a_redelivery_carries_the_same_envelope(self, bus: EventBus, stream: str) -> None:
        sent = event(aggregate_id="1", aggregate_type="Order", attributes={"market": "KRW-BTC"}, priority="low")
        await bus.publish(stream, sent)
        await bus.settle(retry=[await take_one(bus, stream)])
        assert (await take_one(bus, stream)).envelope == sent


class WakeBehaviours(Behaviours):
    """``subscribe``."""

    async def test_publishing_wakes_who_waits_on_the_same_bus(self, harness: Harness, stream: str) -> None:
        await _must_wake(harness, harness.bus, harness.bus, stream)

    async def test_publishing_wakes_who_waits_on_another_bus(self, harness: Harness, stream: str) -> None:
        await _must_wake(harness, await harness.open(), harness.bus, stream)

    async def test_every_subscriber_of_a_stream_is_woken(self, harness: Harness, stream: str) -> None:
        _needs_wakes(harness)
        first, second = asyncio.Event(), asyncio.Event()
        undo = harness.bus.subscribe(stream, first.set), harness.bus.subscribe(stream, second.set)
        assert await _woken_by_publishing(harness.bus, stream, first)
        assert await _woken_by_publishing(harness.bus, stream, second)
        for unsubscribe in undo:
            unsubscribe()

    async def test_publishing_wakes_who_waits_for_that_type(self, harness: Harness, stream: str) -> None:
        for subscriber in (harness.bus, await harness.open()):
            await _must_wake(harness, subscriber, harness.bus, stream, types=["OrderPlaced", event().type])

    async def test_unsubscribing_one_leaves_the_others_subscribed(self, harness: Harness, stream: str) -> None:
        _needs_wakes(harness)
        woken = asyncio.Event()
        harness.bus.subscribe(stream, lambda: None)()
        keep = harness.bus.subscribe(stream, woken.set)
        harness.bus.subscribe(stream, lambda: None)()
        assert await _woken_by_publishing(harness.bus, stream, woken)
        keep()

    async def test_a_bus_that_is_closed_wakes_nobody_and_harms_nobody(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        woken = asyncio.Event()
        undo = other.subscribe(stream, woken.set)
        await other.close()
        woken.clear()
        await harness.bus.publish(stream, event())
        undo()
        assert not woken.is_set()


async def _must_wake(
    harness: Harness, subscriber: EventBus, publisher: EventBus, stream: str, types: list[str] | None = None
) -> None:
    _needs_wakes(harness)
    woken = asyncio.Event()
    undo = subscriber.subscribe(stream, woken.set, types=types)
    assert await _woken_by_publishing(publisher, stream, woken), "publishing woke nobody in ten seconds"
    undo()


async def _woken_by_publishing(publisher: EventBus, stream: str, woken: asyncio.Event) -> bool:
    """Publish until it wakes: the store may learn of a subscription with a delay."""
    for _ in range(10):
        await publisher.publish(stream, event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await woken.wait()
                return True
    return False


def _needs_wakes(harness: Harness) -> None:
    if not harness.wakes:
        pytest.skip("this transport has no wake-ups: its workers poll")


class StoreBehaviours(Behaviours):
    """``setup``, ``open``, ``close``."""

    async def test_setting_up_again_changes_nothing(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        await bus.declare(f"{stream}.ordered", ordered=True)
        assert await bus.setup() == []
        assert ids(await take(bus, stream)) == [event_id]
        await bus.publish(f"{stream}.ordered", of("1", 2))
        assert len(await take(bus, f"{stream}.ordered")) == 1

    async def test_setting_up_from_two_buses_at_once_is_safe(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        assert list(await asyncio.gather(harness.bus.setup(), other.setup(), other.setup())) == [[], [], []]
        [event_id] = await harness.bus.publish(stream, event())
        assert ids(await take(other, stream)) == [event_id]

    async def test_events_outlive_the_bus_that_published_them(self, harness: Harness, stream: str) -> None:
        publisher, consumer = await harness.open(), await harness.open()
        several = events(3)
        await publisher.publish(stream, several)
        await publisher.close()
        assert ids(await take(consumer, stream)) == ids(several)

    async def test_what_a_closed_bus_held_comes_back_when_the_lease_ends(self, harness: Harness, stream: str) -> None:
        worker = await harness.open()
        [event_id] = await harness.bus.publish(stream, event())
        await take(worker, stream, lease=30)
        await worker.close()
        assert await take(harness.bus, stream) == []
        await harness.advance(31)
        assert ids(await take(harness.bus, stream)) == [event_id]

    async def test_closing_twice_is_safe(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        await other.publish(stream, event())
        await other.close()
        await other.close()
        assert await counts(harness.bus, stream) == (1, 0, 0)
