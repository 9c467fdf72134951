"""Records of the data topic: an envelope in its JSON form, with CloudEvents headers for what routes it."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from kingdom.base.jsontext import decode
from kingdom.bus.envelope import PRIORITIES, Envelope, Priority, is_event_id, parse_time
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.stream_entry import NORMAL, EventEntry, aggregate_key

_PRIORITY_INDEX: Final = {name.encode(): index for index, name in enumerate(PRIORITIES)}
Headers = list[tuple[str, bytes]]


class EventText(NamedTuple):
    """The content of a data record."""

    value: bytes
    event_id: str
    type: str
    aggregate_type: str | None
    aggregate_id: str | None
    priority: int
    not_before: datetime | None
    at: float  # when the record was appended
    sequence: int = 0  # the position in publish order beside events of other shards; 0: not known

    def envelope(self) -> Envelope:
        """Return the envelope, or raise :class:`InvalidEnvelope`."""
        try:
            text = self.value.decode()
        except UnicodeDecodeError:
            raise InvalidEnvelope(f"record of event {self.event_id}: its value is not UTF-8") from None
        priority = PRIORITIES[self.priority]
        try:
            envelope = Envelope.from_store(text, self.aggregate_type, self.aggregate_id, priority)
        except InvalidEnvelope:
            envelope = self._foreign(text, priority)
        if self.not_before is not None:
            envelope.__dict__["not_before"] = self.not_before
        return envelope

    def _foreign(self, text: str, priority: Priority) -> Envelope:
        """Return the envelope of a CloudEvent of another program: its value is the payload."""
        try:
            payload = decode(text)
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict) or "eventId" in payload or self.type == UNREADABLE:
            raise InvalidEnvelope(f"record of event {self.event_id}: its value is no envelope and no JSON object")
        when = datetime.fromtimestamp(self.at, UTC)
        return Envelope(
            type=self.type,
            payload=payload,
            event_id=self.event_id,
            occurred_at=when,
            aggregate_type=self.aggregate_type,
            aggregate_id=self.aggregate_id,
            priority=priority,
        )

    def shown(self) -> Envelope:
        """Return the envelope, or a placeholder if it cannot be read."""
        try:
            return self.envelope()
        except InvalidEnvelope:
            return Envelope.unreadable(self.event_id, self.type, self.value.decode(errors="replace"))


UNREADABLE: Final = "unreadable"  # the type of a record that names none


class DataRecord(NamedTuple):
    """A record of the data topic as it was read."""

    offset: int
    text: EventText
    batch: str | None  # events that are published together count when all have arrived
    batch_size: int
    size: int  # in bytes

    def entry(self) -> EventEntry:
        """Return the entry of the event. Its offset is its position in publish order."""
        text = self.text
        not_before = 0.0 if text.not_before is None else text.not_before.timestamp()
        aggregate = ""
        if text.aggregate_type is not None or text.aggregate_id is not None:
            aggregate = f"{text.aggregate_type or ''}\x1f{text.aggregate_id or ''}"
        return EventEntry(
            text.event_id,
            text.type,
            seq=self.offset,
            created_at=text.at,
            ready_at=max(not_before, text.at),
            aggregate=aggregate,
            priority=text.priority,
        )


def headers_of(envelope: Envelope, source: bytes, batch: bytes | None, sequence: int | None = None) -> Headers:
    headers = event_headers(
        event_id=envelope.event_id,
        event_type=envelope.type,
        source=source,
        aggregate_type=envelope.aggregate_type,
        aggregate_id=envelope.aggregate_id,
        priority=envelope.priority,
        not_before=envelope.not_before,
    )
    if batch is not None:
        headers.append(("ce_batch", batch))
    if sequence is not None:
        headers.append(("ce_sequence", str(sequence).encode()))
    return headers


def event_headers(
    *,
    event_id: str,
    event_type: str,
    source: bytes,
    aggregate_type: str | None,
    aggregate_id: str | None,
    priority: str,
    not_before: datetime | None,
) -> Headers:
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_type", event_type.encode()),
        ("ce_source", source),
        ("content-type", b"application/json"),
    ]
    if aggregate_type is not None:
        headers.append(("ce_aggregatetype", aggregate_type.encode()))
    if aggregate_id is not None:
        headers.append(("ce_aggregateid", aggregate_id.encode()))
    if priority != "normal":
        headers.append(("ce_priority", priority.encode()))
    if not_before is not None:
        headers.append(("ce_notbefore", not_before.astimezone(UTC).isoformat().encode()))
    return headers


def key_of(envelope: Envelope) -> bytes | None:
    """Return the key of the record: events of one aggregate share it."""
    key = aggregate_key(envelope)
    return key.partition("\x1f")[2].encode() or None if key else None


def read_record(message: Any) -> DataRecord:
    """Read a message of the data topic, of any author.

    Every process that takes part in a shard does this for each of its events, so headers that few events have cost
    nothing to the others, and texts that many events share are decoded once.
    """
    offset: int = message.offset()
    value: bytes = message.value() or b""
    headers: dict[str, bytes] = dict(message.headers() or ())
    if None in headers.values():
        headers = {name: content or b"" for name, content in headers.items()}
    event_id, event_type = header_text(headers.get("ce_id")), _shared_text(headers.get("ce_type"))
    if event_id is None or event_type is None:
        event_id, event_type = _identity_in(value, offset)
    elif not is_event_id(event_id):
        event_id, event_type = f"{UNREADABLE}-{offset}", UNREADABLE
    aggregate_id = header_text(headers["ce_aggregateid"]) if "ce_aggregateid" in headers else None
    if aggregate_id is None and "ce_specversion" not in headers:
        aggregate_id = header_text(message.key())
    text = EventText(
        value,
        event_id,
        event_type,
        _shared_text(headers["ce_aggregatetype"]) if "ce_aggregatetype" in headers else None,
        aggregate_id,
        _PRIORITY_INDEX.get(headers["ce_priority"], NORMAL) if "ce_priority" in headers else NORMAL,
        _time(headers["ce_notbefore"]) if "ce_notbefore" in headers else None,
        message.timestamp()[1] / 1000,
        _number(headers["ce_sequence"]) if "ce_sequence" in headers else 0,
    )
    return DataRecord(offset, text, *_batch_in(headers.get("ce_batch")), len(value) + 200)


def header_text(content: bytes | None) -> str | None:
    """Return the text of a header, or None if it has none."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


_shared_text = functools.lru_cache(maxsize=1024)(header_text)


@functools.lru_cache(maxsize=64)
def _batch_in(content: bytes | None) -> tuple[str | None, int]:
    """Return the id of the batch that an event was published in, and how many events it has."""
    batch, _, size = (header_text(content) or "").partition(" ")
    return (batch, int(size)) if batch and size.isdecimal() else (None, 1)


def _time(content: bytes | None) -> datetime | None:
    try:
        return None if content is None else parse_time(content.decode(), "ce_notbefore")
    except (InvalidEnvelope, UnicodeDecodeError):
        return None


def _number(content: bytes | None) -> int:
    return int(content) if content is not None and len(content) < 20 and content.isdigit() else 0


def _identity_in(value: bytes, offset: int) -> tuple[str, str]:
    """Return id and type of an envelope without headers."""
    try:
        document = decode(value.decode())
        event_id, event_type = document["eventId"], document["type"]
        if isinstance(event_type, str) and is_event_id(event_id):
            return event_id, event_type
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return f"{UNREADABLE}-{offset}", UNREADABLE
