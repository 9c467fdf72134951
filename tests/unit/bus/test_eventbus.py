"""What the bus itself checks, whatever the transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from kingdom.bus import DeadVerdict, Envelope, EventBus, InvalidEnvelope, InvalidOption, RetryVerdict
from kingdom.bus.eventbus import unique_envelopes
from kingdom.bus.options import positive_seconds
from tests.support.buses import memory_bus


@pytest.fixture
async def bus() -> AsyncIterator[EventBus]:
    async with memory_bus() as inner:
        yield inner


def test_envelopes_and_collections_of_them_become_one_list() -> None:
    a, b, c, d = (Envelope(name) for name in "ABCD")
    assert unique_envelopes([a, [b, c], (item for item in [d])]) == [a, b, c, d]
    assert unique_envelopes([[], ()]) == []


def test_of_envelopes_with_one_id_the_first_counts_and_keeps_its_place() -> None:
    first, other, again = Envelope("A", event_id="1"), Envelope("B"), Envelope("C", event_id="1")
    assert unique_envelopes([first, other, again]) == [first, other]


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"type": "A"}, 7, None, [Envelope("A"), 7], [["nested"]]])
def test_anything_else_is_refused_by_its_kind(wrong: Any) -> None:
    with pytest.raises(InvalidEnvelope, match=r"publish takes Envelope objects, not \w+"):
        unique_envelopes([wrong])


def test_spans_are_numbers_or_timedeltas() -> None:
    assert positive_seconds("x", 5) == 5.0
    assert positive_seconds("x", timedelta(minutes=2)) == 120.0


@pytest.mark.parametrize("span", [0, -1, float("inf"), float("nan"), timedelta(0)])
def test_a_span_that_is_none_is_refused(span: Any) -> None:
    with pytest.raises(InvalidOption, match=r"claim\(lease\) = .*: must be more than zero seconds"):
        positive_seconds("claim(lease)", span)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bus: bus.claim("s", worker="w", limit=0), r"claim\(limit=0\): must be 1 or more"),
        (lambda bus: bus.claim("s", worker="w", max_attempts=0), r"claim\(max_attempts=0\): must be 1 or more"),
        (lambda bus: bus.dead("s", limit=0), r"dead\(limit=0\): must be 1 or more"),
        (lambda bus: bus.claim("s", worker="w", limit="5"), r"claim\(limit='5'\): must be a whole number, 1 or more"),
        (lambda bus: bus.claim("s", worker="w", lease=None), r"claim\(lease\) = None: must be seconds, as a number or"),
        (lambda bus: bus.purge("a week"), r"purge\(older_than\) = 'a week': must be seconds, as a number or"),
        (lambda bus: bus.requeue("s"), "requeue needs ids, event_type, error_code or everything=True"),
        (lambda bus: bus.purge(-1), r"purge\(older_than=-1\): zero or more seconds"),
        (lambda bus: bus.declare("s", dead_head="stop"), "dead_head must be 'go-on' or 'park', not 'stop'"),
        (lambda bus: bus.declare("s", states={"LOST": "lost"}), "states has no state 'LOST'"),
    ],
)
async def test_an_option_out_of_its_range_is_named(bus: EventBus, call: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        await call(bus)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda bus: bus.claim("s", worker="w", types="OrderPlaced"), "claim(types='OrderPlaced')"),
        (lambda bus: bus.claim("s", worker="w", ids="e-1"), "claim(ids='e-1')"),
        (lambda bus: bus.peek("s", types="OrderPlaced"), "peek(types='OrderPlaced')"),
        (lambda bus: bus.find_many("e-1"), "find_many(event_ids='e-1')"),
        (lambda bus: bus.requeue("s", "e-1"), "requeue(ids='e-1')"),
        (lambda bus: bus.purge(0, keep="e-1"), "purge(keep='e-1')"),
        (lambda bus: bus.purge(0, only="e-1"), "purge(only='e-1')"),
    ],
)
async def test_one_text_is_not_taken_for_a_collection_of_characters(bus: EventBus, call: Any, name: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        await call(bus)
    assert str(refused.value).startswith(f"{name}: must be a collection, as [")


def test_types_to_be_woken_for_are_a_collection_too(bus: EventBus) -> None:
    with pytest.raises(InvalidOption, match="must be a collection"):
        bus.subscribe("s", lambda: None, types="OrderPlaced")


@pytest.mark.parametrize("fate", ["done", "retry", "dead"])
@pytest.mark.parametrize("wrong", ["e-1", ("e-1",), (), 7])
async def test_only_deliveries_can_be_settled(bus: EventBus, fate: str, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=rf"settle\({fate}\) takes deliveries of claim\(\)"):
        await bus.settle(**{fate: [wrong]})


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan"), timedelta(seconds=-1)])
async def test_a_retry_in_the_past_or_never_is_refused(bus: EventBus, after: Any) -> None:
    await bus.publish("s", Envelope("A"))
    [delivery] = await bus.claim("s", worker="w")
    for verdict in ((delivery, after), RetryVerdict(delivery, after)):
        with pytest.raises(InvalidOption, match=r"settle\(retry\): after=.* must be zero or more seconds"):
            await bus.settle(retry=[verdict])
    assert await bus.settle(dead=[DeadVerdict(delivery)]) == []


async def test_a_transport_that_cannot_be_opened_is_closed_again() -> None:
    calls = []

    class Broken:
        async def open(self) -> None:
            calls.append("open")
            raise ConnectionError("away")

        async def close(self) -> None:
            calls.append("close")

    with pytest.raises(ConnectionError, match="away"):
        async with EventBus(Broken(), "broken:"):  # type: ignore[arg-type]
            pass
    assert calls == ["open", "close"]
