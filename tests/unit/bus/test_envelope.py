from __future__ import annotations

import copy
import json
import pickle
from collections import UserDict
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.base.jsontext import encode
from kingdom.bus import Envelope, InvalidEnvelope
from kingdom.bus.envelope import RESERVED, format_time, parse_time

MOMENT = datetime(2026, 2, 17, 1, 2, 3, 456000, tzinfo=UTC)


def test_the_json_form_is_the_one_of_the_specification() -> None:
    envelope = Envelope(
        type="CreateOrderAttempt",
        payload={"orderAttemptId": 7},
        attributes={"market": "KRW-BTC"},
        event_id="e-1",
        trace_id="t-1",
        occurred_at=MOMENT,
        aggregate_type="OrderAttempt",
        aggregate_id="7",
        priority="high",
    )
    assert envelope.to_json() == (
        '{"schemaVersion":1,"eventId":"e-1","type":"CreateOrderAttempt","occurredAt":"2026-02-17T01:02:03.456Z",'
        '"traceId":"t-1","market":"KRW-BTC","payload":{"orderAttemptId":7}}'
    )


@pytest.mark.parametrize("name", ["type", "event_id", "own_id", "something_else"])
def test_it_cannot_be_changed(name: str) -> None:
    envelope = Envelope(type="T", event_id="e-1")
    with pytest.raises(FrozenInstanceError):
        setattr(envelope, name, "x")
    assert envelope == Envelope(type="T", event_id="e-1", occurred_at=envelope.occurred_at)


def test_what_is_not_given_has_sensible_defaults() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    envelope = Envelope("Happened")
    assert UUID(envelope.event_id).version == 7
    assert envelope.trace_id == envelope.event_id
    assert before <= envelope.occurred_at <= datetime.now(UTC)
    assert (envelope.payload, envelope.attributes, envelope.schema_version, envelope.priority) == ({}, {}, 1, "normal")


def test_an_envelope_is_copied_whole() -> None:
    envelope = Envelope("Happened", payload={"a": 1}, aggregate_id="7", attributes={"b": 2}, priority="high")
    assert pickle.loads(pickle.dumps(envelope)) == copy.deepcopy(envelope) == replace(envelope) == envelope
    changed = replace(envelope, payload={"a": 2})
    assert (changed.event_id, changed.payload, changed.priority) == (envelope.event_id, {"a": 2}, "high")


def test_only_an_id_that_was_made_here_is_its_own() -> None:
    made = Envelope("Happened")
    assert made.own_id
    for known in (Envelope("Happened", event_id="e-1"), replace(made), Envelope.from_json(made.to_json())):
        assert not known.own_id
    assert not Envelope.from_store(made.to_json(), None, None).own_id
    assert not Envelope.unreadable("e-1", "Happened", "{").own_id


def test_uuids_and_numbers_become_text() -> None:
    identity, aggregate = uuid4(), uuid4()
    assert Envelope("A", event_id=identity).event_id == str(identity)  # type: ignore[arg-type]
    assert Envelope("A", aggregate_id=aggregate).aggregate_id == str(aggregate)  # type: ignore[arg-type]
    assert Envelope("A", aggregate_id=7).aggregate_id == "7"  # type: ignore[arg-type]


def test_times_are_kept_to_the_millisecond_so_that_a_round_trip_is_exact() -> None:
    envelope = Envelope("A", occurred_at=MOMENT.replace(microsecond=456_789))
    assert envelope.occurred_at == MOMENT
    assert Envelope.from_json(envelope.to_json()) == envelope


def test_any_mapping_may_be_a_payload() -> None:
    assert json.loads(Envelope("A", payload=UserDict({"a": 1})).to_json())["payload"] == {"a": 1}


def test_routing_is_not_part_of_the_json_form_and_is_given_back_beside_it() -> None:
    envelope = Envelope("A", aggregate_type="Order", aggregate_id="1", priority="low", not_before=MOMENT)
    text = envelope.to_json()
    assert not {"aggregateType", "aggregateId", "priority", "notBefore"} & set(json.loads(text))
    routing = {"aggregate_type": "Order", "aggregate_id": "1", "priority": "low", "not_before": MOMENT}
    assert Envelope.from_json(text, **routing) == envelope


def test_unknown_keys_are_attributes_and_survive() -> None:
    document = {"eventId": "e", "type": "A", "occurredAt": "2026-02-17T00:00:00Z", "new": {"deep": [1]}}
    envelope = Envelope.from_dict(document)
    assert envelope.attributes == {"new": {"deep": [1]}}
    assert envelope.to_dict()["new"] == {"deep": [1]}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=3)
    ),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), JSON, max_size=4)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(payload=OBJECTS, trace=TEXTS, seconds=st.floats(0, 4e9))
def test_the_text_is_that_of_the_dictionary(payload: dict[str, Any], trace: str, seconds: float) -> None:
    """It is put together around the payload: the fields before that must be written as in the dictionary."""
    moment = datetime.fromtimestamp(seconds, UTC)
    envelope = Envelope("Happened", payload=payload, event_id="e-1", trace_id=trace, occurred_at=moment)
    assert envelope.to_json() == encode(envelope.to_dict())


@given(payload=OBJECTS, attributes=OBJECTS.map(lambda some: {k: v for k, v in some.items() if k not in RESERVED}))
def test_whatever_is_json_survives_the_round_trip_on_both_ways_back(
    payload: dict[str, Any], attributes: dict[str, Any]
) -> None:
    envelope = Envelope("A", payload=payload, attributes=attributes, aggregate_id="1")
    text = envelope.to_json()
    assert Envelope.from_json(text, aggregate_id="1") == envelope
    assert Envelope.from_store(text, None, "1") == envelope


def test_a_stored_envelope_that_is_not_as_we_write_them_is_read_the_long_way() -> None:
    text = '{"eventId": "e", "type": "A", "occurredAt": "2026-02-17T00:00:00Z", "market": "KRW-BTC"}'
    envelope = Envelope.from_store(text, "Order", "1", "high")
    assert (envelope.event_id, envelope.trace_id, envelope.payload) == ("e", "e", {})
    assert (envelope.attributes, envelope.aggregate_type, envelope.priority) == ({"market": "KRW-BTC"}, "Order", "high")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a JSON object, not list"),
        ('"text"', "a JSON object, not str"),
        ('{"type": "A", "occurredAt": "2026-02-17T00:00:00Z"}', "has no eventId"),
        ('{"eventId": "e", "occurredAt": "2026-02-17T00:00:00Z"}', "has no type"),
        ('{"eventId": "e", "type": "A"}', "has no occurredAt"),
        ('{"eventId": "e", "type": "A", "occurredAt": "yesterday"}', "occurredAt 'yesterday' is not an ISO 8601 time"),
        ('{"eventId": "e", "type": "A", "occurredAt": 7}', "occurredAt 7 is not an ISO 8601 time"),
        ('{"eventId": "e", "type": "A", "occurredAt": "2026-02-17T00:00:00"}', "has no time zone; write it in UTC"),
        ('{"eventId": "a/b", "type": "A", "occurredAt": "2026-02-17T00:00:00Z"}', "event id 'a/b'"),
        ('{"eventId": "e", "type": 7, "occurredAt": "2026-02-17T00:00:00Z"}', "type must be text"),
        (
            '{"eventId": "e", "type": "A", "occurredAt": "2026-02-17T00:00:00Z", "payload": 1}',
            "payload must be a mapping",
        ),
    ],
)
def test_what_is_no_envelope_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    for read in (Envelope.from_json, lambda item: Envelope.from_store(item, None, None)):
        with pytest.raises(InvalidEnvelope) as refused:
            read(text)
        assert message in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": ""}, "type must be text of 1 to 200 characters"),
        ({"type": "x" * 201}, "type must be text of 1 to 200 characters"),
        ({"type": None}, "type must be text"),
        ({"type": "a\0b"}, "type contains a NUL character"),
        ({"trace_id": 7}, "trace_id must be text"),
        ({"trace_id": "x" * 201}, "trace_id must be text"),
        ({"aggregate_type": 7}, "aggregate_type must be text"),
        ({"aggregate_id": "x" * 201}, "aggregate_id must be text"),
        ({"aggregate_id": "\0"}, "aggregate_id contains a NUL character"),
        ({"aggregate_type": "\ud800"}, "aggregate_type is not text"),
        ({"event_id": "a/b"}, "event id 'a/b': '/' at position 1 is not allowed"),
        ({"event_id": 7}, "it must be a string, not int"),
        ({"payload": [1]}, "payload must be a mapping, not list"),
        ({"attributes": {"type": "B"}}, "attribute 'type' is a field of the envelope; rename it"),
        ({"attributes": {"payload": 1, "eventId": 2}}, "attribute 'eventId' is a field of the envelope"),
        ({"priority": "urgent"}, "priority must be one of high, normal, low, not 'urgent'"),
        ({"schema_version": "1"}, "schema_version must be a whole number"),
        ({"occurred_at": datetime(2026, 1, 1)}, "occurred_at must be a datetime with a time zone"),  # noqa: DTZ001
        ({"occurred_at": "2026-01-01"}, "occurred_at must be a datetime with a time zone"),
        ({"occurred_at": None}, "occurred_at must be a datetime with a time zone"),
        ({"not_before": 7}, "not_before must be a datetime with a time zone"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEnvelope) as refused:
        Envelope(**{"type": "Happened", **fields})
    assert message in str(refused.value)


def _loop() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"when": MOMENT}, "payload.when: Object of type datetime"),
        ({"deep": [{"er": {1, 2}}]}, "payload.deep[0].er: Object of type set"),
        ({"rate": float("nan")}, "payload.rate: Out of range float"),
        ({"rate": float("inf")}, "payload.rate: Out of range float"),
        ({"text": "\ud800"}, "payload.text: 'utf-8' codec can't encode"),
        ({("a", "b"): 1}, "keys must be str"),
        ({"loop": _loop()}, "is not JSON"),
    ],
)
def test_a_payload_that_is_not_json_is_refused_with_its_place(payload: dict[Any, Any], message: str) -> None:
    with pytest.raises(InvalidEnvelope) as refused:
        Envelope("OrderAccepted", payload=payload, event_id="e-1").to_json()
    assert str(refused.value).startswith("event e-1 (OrderAccepted) is not JSON: ")
    assert message in str(refused.value)


def test_an_attribute_that_is_not_json_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidEnvelope, match=r"attributes\.market: Object of type object"):
        Envelope("A", attributes={"market": object()}).to_json()


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"text": "a\0b"}, "payload.text"),
        ({"list": ["fine", {"text": "\0"}]}, "payload.list[1].text"),
        ({"a\0b": 1}, "a key of payload"),
    ],
)
def test_a_nul_character_is_refused_with_its_place(payload: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidEnvelope, match="NUL character, which PostgreSQL cannot store") as refused:
        Envelope("A", payload=payload).to_json()
    assert place in str(refused.value)


def test_text_that_only_looks_like_a_nul_is_fine() -> None:
    assert "\\\\u0000" in Envelope("A", payload={"text": "\\u0000"}).to_json()


def test_the_size_limit_counts_bytes_and_says_what_to_do() -> None:
    envelope = Envelope("A", payload={"text": "왕" * 1000}, event_id="e-1", occurred_at=MOMENT)
    size = len(envelope.to_json().encode())
    assert size > 3000
    assert envelope.to_json(max_bytes=size)
    with pytest.raises(InvalidEnvelope) as refused:
        envelope.to_json(max_bytes=size - 1)
    assert str(refused.value) == (
        f"event e-1 (A) is {size:,} bytes, the limit is {size - 1:,}: "
        "store the data elsewhere and publish a reference to it, or raise max_bytes"
    )


def test_an_unreadable_envelope_keeps_its_id_and_type_for_operators() -> None:
    envelope = Envelope.unreadable("edited by hand/1", "OrderAccepted", "{half")
    assert (envelope.event_id, envelope.trace_id, envelope.type) == (
        "edited by hand/1",
        "edited by hand/1",
        "OrderAccepted",
    )
    assert envelope.payload == {"stored": "{half"}


def test_times_are_written_in_utc() -> None:
    seoul = datetime(2026, 2, 17, 9, 0, 0, 5_000, tzinfo=timezone(timedelta(hours=9)))
    assert format_time(seoul) == "2026-02-17T00:00:00.005Z"
    assert format_time(MOMENT) == "2026-02-17T01:02:03.456Z"
    assert parse_time("2026-02-17T09:00:00.005+09:00", "occurredAt") == seoul


def test_of_an_hour_that_comes_twice_each_time_is_its_own() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    assert first == second
    assert [format_time(moment)[11:16] for moment in (first, second)] == ["00:30", "01:30"]


@pytest.mark.parametrize("more", [{}, {"attributes": {"market": "KRW"}}, {"schema_version": True}])
def test_the_text_is_the_compact_json_of_the_dictionary(more: dict[str, Any]) -> None:
    envelope = Envelope(type='of "ours" \\ 한', payload=UserDict({"a": [1.5, None]}), trace_id="tab\there", **more)
    assert envelope.to_json() == json.dumps(envelope.to_dict(), ensure_ascii=False, separators=(",", ":"))


def test_an_envelope_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Envelope("A").type = "B"  # type: ignore[misc]
