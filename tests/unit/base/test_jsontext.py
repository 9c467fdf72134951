"""The fast way to JSON gives what the slow one gives, and refuses what it refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.base.jsontext import decode, encode
from kingdom.bus import Envelope
from kingdom.bus.envelope import RESERVED
from kingdom.bus.errors import InvalidEnvelope

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def slowly(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@given(VALUES)
def test_every_value_is_written_as_the_library_writes_it(value: Any) -> None:
    assert encode(value) == slowly(value)


@given(VALUES, st.booleans(), st.sampled_from(["", " ", "\n\t "]), st.sampled_from(["", " ", "\n"]))
def test_every_text_is_read_as_the_library_reads_it(value: Any, spread: bool, before: str, after: str) -> None:
    text = before + (json.dumps(value, indent=1) if spread else slowly(value)) + after
    assert decode(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", " ", "{", "nul", "1 2", "{} x", '{"a":1}]', "'a'", "[1,]", '{"a"}', "\ufeff{}"])
def test_what_is_no_json_is_refused_with_the_words_of_the_library(text: str) -> None:
    with pytest.raises(ValueError) as slow:
        json.loads(text)
    with pytest.raises(ValueError) as fast:
        decode(text)
    assert str(fast.value) == str(slow.value)


@given(
    st.dictionaries(TEXT, VALUES, max_size=4),
    st.dictionaries(TEXT.filter(lambda key: key not in RESERVED), VALUES, max_size=3),
    TEXT.filter(bool),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=9))])),
)
def test_an_envelope_is_written_as_its_dictionary_is(
    payload: dict[str, Any], attributes: dict[str, Any], kind: str, when: datetime
) -> None:
    envelope = Envelope(type=kind, payload=payload, attributes=attributes, trace_id=kind, occurred_at=when)
    text = envelope.to_json()
    assert text == slowly(envelope.to_dict())
    assert Envelope.from_json(text) == envelope


@pytest.mark.parametrize("value", [float("nan"), {"a": object()}, {("a",): 1}, {"a": {1, 2}}])
def test_what_is_no_json_is_refused_as_by_the_library(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as slow:
        slowly(value)
    with pytest.raises(type(slow.value), match=str(slow.value)[:20].replace("(", ".")):
        encode(value)


def test_a_circle_is_refused_and_the_next_value_is_written() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    with pytest.raises(InvalidEnvelope, match="Circular"):
        Envelope(type="T", payload=circle).to_json()
    assert encode({"a": 1}) == '{"a":1}'


def test_events_of_one_millisecond_share_their_time_and_later_ones_do_not() -> None:
    times = [Envelope(type="T").occurred_at for _ in range(1000)]
    assert times == sorted(times)
    assert all(moment.microsecond % 1000 == 0 and moment.tzinfo is UTC for moment in times)
    assert abs((datetime.now(UTC) - times[-1]).total_seconds()) < 60
