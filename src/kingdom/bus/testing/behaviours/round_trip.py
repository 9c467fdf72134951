"""What comes out of a claim is what went into publish."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kingdom.bus.envelope import Envelope
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, bury, event, ids, known, take, take_one


class RoundTrip(Behaviours):
    """The envelope, through the store and back."""

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
