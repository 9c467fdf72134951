"""What a record of a data topic is taken for. All processes must take it for the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

pytest.importorskip("confluent_kafka")

from kingdom.bus import Envelope
from kingdom.bus.transports.kafka._records import DataRecord, headers_of, read_record


@dataclass
class _Message:
    """A message as the client returns it."""

    content: bytes | None = b"{}"
    given: list[tuple[str, bytes | None]] | None = field(default_factory=list)
    named: bytes | None = None

    def offset(self) -> int:
        return 7

    def value(self) -> bytes | None:
        return self.content

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.given

    def key(self) -> bytes | None:
        return self.named

    def timestamp(self) -> tuple[int, int]:
        return 2, 1_500


def _read(**message: object) -> DataRecord:
    return read_record(_Message(**message))  # type: ignore[arg-type]


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
def test_what_we_publish_comes_back(priority: str) -> None:
    sent = Envelope(
        type="Paid",
        payload={"sum": 3},
        event_id="p-1",
        aggregate_type="Order",
        aggregate_id="o-1",
        priority=priority,  # type: ignore[arg-type]
    )
    read = _read(content=sent.to_json().encode(), given=headers_of(sent, b"/kingdom/x", b"ab12 40", 9))
    assert (read.offset, read.batch, read.batch_size, read.text.sequence) == (7, "ab12", 40, 9)
    assert read.text.envelope().to_dict() == sent.to_dict()
    assert (read.text.aggregate_type, read.text.aggregate_id) == ("Order", "o-1")
    assert read.text.envelope().priority == priority
    assert read.entry().created_at == 1.5


def test_an_envelope_without_headers_says_itself_what_it_is() -> None:
    read = _read(content=Envelope(type="Paid", event_id="p-1").to_json().encode(), given=None, named=b"o-1")
    assert (read.text.event_id, read.text.type, read.text.aggregate_id) == ("p-1", "Paid", "o-1")
    assert (read.batch, read.batch_size) == (None, 1)


@pytest.mark.parametrize(
    ("event_id", "event_type"),
    [(None, b"Paid"), (b"", b"Paid"), (b"no spaces", b"Paid"), (b"\xff", b"Paid"), (b"p-1", b"\xff")],
)
def test_a_record_with_no_usable_id_is_unreadable(event_id: bytes | None, event_type: bytes) -> None:
    read = _read(content=b"[]", given=[("ce_specversion", b"1.0"), ("ce_id", event_id), ("ce_type", event_type)])
    assert (read.text.event_id, read.text.type) == ("unreadable-7", "unreadable")


def test_an_empty_id_is_not_looked_for_in_the_content() -> None:
    content = json.dumps({"eventId": "p-1", "type": "Paid"}).encode()
    for empty in (None, b""):
        assert _read(content=content, given=[("ce_id", empty), ("ce_type", b"Paid")]).text.event_id == "unreadable-7"


@pytest.mark.parametrize("batch", [None, b"", b"ab12", b" 3", b"ab12 three", b"\xff 3"])
def test_a_batch_that_cannot_be_read_is_none(batch: bytes | None) -> None:
    read = _read(given=[("ce_id", b"p-1"), ("ce_type", b"Paid"), ("ce_batch", batch)])
    assert (read.batch, read.batch_size) == (None, 1)


def test_other_headers_that_cannot_be_read_do_not_count() -> None:
    given = [("ce_priority", b"urgent"), ("ce_notbefore", b"soon"), ("ce_sequence", b"-1"), ("ce_aggregatetype", None)]
    text = _read(content=None, given=[("ce_id", b"p-1"), ("ce_type", b"Paid"), *given]).text
    assert (text.value, text.priority, text.not_before, text.sequence, text.aggregate_type) == (b"", 1, None, 0, "")
