"""The envelope of an event: its fields, the names and ids they may hold, and its JSON form.

The JSON form is fixed, so that an event means the same in a file, a row or a Kafka record::

    {"schemaVersion": 1, "eventId": "…", "type": "CreateOrderAttempt", "occurredAt": "2026-02-17T00:00:00.000Z",
     "traceId": "…", …attributes…, "payload": {…}}

``aggregate_type``, ``aggregate_id``, ``priority`` and ``not_before`` *route* the event. They are not part of the JSON
form: each transport keeps them where it can use them (columns, a key, a header).
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, Self
from uuid import UUID

from kingdom.base.jsontext import decode, encode, quoted
from kingdom.bus.errors import InvalidEnvelope, InvalidName

Priority = Literal["high", "normal", "low"]
PRIORITIES: Final[tuple[Priority, ...]] = ("high", "normal", "low")  # in the order they are claimed
RESERVED: Final = frozenset({"schemaVersion", "eventId", "type", "occurredAt", "traceId", "payload"})
DEFAULT_MAX_BYTES: Final = 1024 * 1024
MAX_ID_BYTES: Final = 200
MAX_STREAM_BYTES: Final = 100
_MAX_LABEL_CHARS: Final = 200  # of type, aggregate_type, aggregate_id and trace_id
_NOT_GIVEN: Final[Any] = object()

# RFC 9562: version 7 in bits 76 to 79, the variant 0b10 in bits 62 and 63, random bits in the rest below the time.
_UUID7_MARKS: Final = 0x7 << 76 | 0b10 << 62
_UUID7_NOISE: Final = ~(0b11 << 62)
# A generator of our own: a program that seeds the one of the module would repeat ids. So would a forked process.
_random = random.Random()  # noqa: S311 - ids are no secrets
os.register_at_fork(after_in_child=_random.seed)

# Ids become file names, keys and parts of paths, so one strict rule holds on every transport: these characters, no
# leading dot, at most 200 bytes. Streams follow the same rule at 100 bytes.
_is_name = re.compile(r"[A-Za-z0-9_:@+\-][A-Za-z0-9._:@+\-]*\Z").match
_find_bad_character = re.compile(r"[^A-Za-z0-9._:@+\-]").search


def check_event_id(value: str) -> str:
    """Return ``value`` if it is a valid event id; otherwise raise :class:`InvalidName` with the reason."""
    return _check_name("event id", value, MAX_ID_BYTES)


def is_event_id(value: object) -> bool:
    """Return whether ``value`` is a valid event id."""
    return isinstance(value, str) and len(value) <= MAX_ID_BYTES and _is_name(value) is not None


def check_stream(value: str) -> str:
    """Return ``value`` if it is a valid stream name; otherwise raise :class:`InvalidName` with the reason."""
    return _check_name("stream name", value, MAX_STREAM_BYTES)


def check_worker(value: str) -> str:
    """Return ``value`` if it is a valid worker name; otherwise raise :class:`InvalidName` with the reason."""
    return _check_name("worker name", value, MAX_ID_BYTES)


def _check_name(what: str, value: str, limit: int) -> str:
    if isinstance(value, str) and len(value) <= limit and _is_name(value):
        return value
    shown = value if isinstance(value, str) and len(value) <= 60 else repr(value)[:60] + "…"
    rule = "use A-Z a-z 0-9 . _ : @ + - and do not start with a dot"
    if not isinstance(value, str):
        reason = f"it must be a string, not {type(value).__name__}"
    elif not value:
        reason = "it is empty"
    elif len(value.encode("utf-8", "replace")) > limit:
        reason = f"it is longer than {limit} bytes"
    elif value.startswith("."):
        reason = "it starts with a dot"
    elif bad := _find_bad_character(value):
        reason = f"{bad.group()!r} at position {bad.start()} is not allowed"
    else:
        reason = "it is not allowed"
    raise InvalidName(f"{what} {shown!r}: {reason}; {rule}")


def new_event_id() -> str:
    """Return a new UUIDv7 as text.

    Its leading bits are the time, so ids made one after another are neighbours in every index. With random ids each
    insert into a large table touches a page of its own.
    """
    digits = f"{_random.getrandbits(76) & _UUID7_NOISE | _UUID7_MARKS:020x}"
    return f"{_uuid7_start(time.time_ns() // 1_000_000)}-{digits[:4]}-{digits[4:8]}-{digits[8:]}"


@lru_cache(maxsize=4)  # ids that are made together share it
def _uuid7_start(millis: int) -> str:
    digits = f"{millis:012x}"
    return f"{digits[:8]}-{digits[8:]}"


@lru_cache(maxsize=4)  # events that are made together share their time
def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


def _to_milliseconds(moment: datetime) -> datetime:
    """Return the time as the JSON form holds it: what is read back must equal what was sent."""
    excess = moment.microsecond % 1000 if isinstance(moment, datetime) else 0
    return moment.replace(microsecond=moment.microsecond - excess) if excess else moment


@dataclass(frozen=True, init=False)
class Envelope:
    """One event: what happened (``type``, ``payload``), to what (``aggregate_*``), and how it is routed.

    Without an ``event_id`` the event gets a new one. Without a ``trace_id`` it starts a trace named after its own id.
    ``occurred_at`` defaults to now and is kept to the millisecond, which is what the JSON form holds.
    """

    type: str
    payload: Mapping[str, Any]
    aggregate_type: str | None
    aggregate_id: str | None
    attributes: Mapping[str, Any]
    event_id: str
    trace_id: str
    occurred_at: datetime
    schema_version: int
    priority: Priority
    not_before: datetime | None
    own_id: bool = field(init=False, repr=False, compare=False)  # the id was made here, and no store has it yet

    # The __init__ that a frozen dataclass gets sets field after field, which takes three times as long.
    def __init__(
        self,
        type: str,  # noqa: A002 - the name of the specification
        payload: Mapping[str, Any] = _NOT_GIVEN,
        aggregate_type: str | None = None,
        aggregate_id: str | UUID | int | None = None,
        attributes: Mapping[str, Any] = _NOT_GIVEN,
        event_id: str | UUID = _NOT_GIVEN,
        trace_id: str = "",
        occurred_at: datetime = _NOT_GIVEN,
        schema_version: int = 1,
        priority: Priority = "normal",
        not_before: datetime | None = None,
    ) -> None:
        own_id = event_id is _NOT_GIVEN
        if own_id:
            event_id = new_event_id()
        elif isinstance(event_id, UUID):
            event_id = str(event_id)
        self.__dict__.update(
            type=type,
            payload={} if payload is _NOT_GIVEN else payload,
            aggregate_type=aggregate_type,
            aggregate_id=str(aggregate_id) if isinstance(aggregate_id, (UUID, int)) else aggregate_id,
            attributes={} if attributes is _NOT_GIVEN else attributes,
            event_id=event_id,
            trace_id=event_id if trace_id == "" else trace_id,
            occurred_at=_moment(time.time_ns() // 1_000_000)
            if occurred_at is _NOT_GIVEN
            else _to_milliseconds(occurred_at),
            schema_version=schema_version,
            priority=priority,
            not_before=not_before,
            own_id=own_id,
        )
        _check_fields(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form as a dictionary, in the order of the specification."""
        return {
            "schemaVersion": self.schema_version,
            "eventId": self.event_id,
            "type": self.type,
            "occurredAt": format_time(self.occurred_at),
            "traceId": self.trace_id,
            **self.attributes,
            "payload": self.payload if isinstance(self.payload, dict) else dict(self.payload),
        }

    def to_json(self, max_bytes: int = DEFAULT_MAX_BYTES) -> str:
        """Return the JSON form as text, or raise :class:`InvalidEnvelope` with the reason it cannot be stored."""
        try:
            text = self._json()
            size = len(text) if text.isascii() else len(text.encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidEnvelope(f"event {self.event_id} ({self.type}) is not JSON: {_blame(self, error)}") from None
        if size > max_bytes:
            raise InvalidEnvelope(
                f"event {self.event_id} ({self.type}) is {size:,} bytes, the limit is {max_bytes:,}: "
                "store the data elsewhere and publish a reference to it, or raise max_bytes"
            )
        if "\\u0000" in text and (place := _find_nul(self.to_dict(), "")):
            raise InvalidEnvelope(
                f"event {self.event_id} ({self.type}): {place} contains a NUL character, "
                "which PostgreSQL cannot store; remove it or encode the bytes"
            )
        return text

    def _json(self) -> str:
        if self.attributes or type(self.schema_version) is not int:
            return encode(self.to_dict())
        payload = encode(self.payload if isinstance(self.payload, dict) else dict(self.payload))
        # Less than half of what encoding the dictionary takes.
        return (
            f'{{"schemaVersion":{self.schema_version},"eventId":{quoted(self.event_id)},"type":{quoted(self.type)},'
            f'"occurredAt":"{format_time(self.occurred_at)}","traceId":{quoted(self.trace_id)},"payload":{payload}}}'
        )

    def mark_stored(self) -> None:
        """Record that a store has this event: publishing it again may find its id there."""
        self.__dict__["own_id"] = False

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], **routing: Any) -> Self:
        """Rebuild an envelope from its JSON form. Unknown keys become attributes and survive the round trip."""
        if not isinstance(document, Mapping):
            raise InvalidEnvelope(f"an envelope is a JSON object, not {type(document).__name__}")
        try:
            event_id, event_type, occurred_at = document["eventId"], document["type"], document["occurredAt"]
        except KeyError as error:
            raise InvalidEnvelope(f"the envelope has no {error.args[0]}") from None
        return cls(
            type=event_type,
            payload=document.get("payload", {}),
            attributes=_attributes(document),
            event_id=event_id,
            trace_id=document.get("traceId") or "",
            occurred_at=parse_time(occurred_at, "occurredAt"),
            schema_version=document.get("schemaVersion", 1),
            **routing,
        )

    @classmethod
    def from_json(cls, text: str | bytes, **routing: Any) -> Self:
        """Rebuild an envelope from JSON text."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidEnvelope(f"not JSON: {error}") from None
        return cls.from_dict(document, **routing)

    @classmethod
    def from_store(
        cls, text: str, aggregate_type: str | None, aggregate_id: str | None, priority: Priority = "normal"
    ) -> Self:
        """Rebuild an envelope that a transport stored.

        It was checked when it was published, so only its shape is checked here: another program that writes to the
        table may use other ids. What has the wrong shape goes through :meth:`from_json`, which says why.
        """
        try:
            document = decode(text)
            fields: dict[str, Any] = {
                "type": document["type"],
                "payload": document["payload"],
                "aggregate_type": aggregate_type,
                "aggregate_id": aggregate_id,
                "event_id": document["eventId"],
                "trace_id": document["traceId"],
                "occurred_at": datetime.fromisoformat(document["occurredAt"]),
                "schema_version": document["schemaVersion"],
                "priority": priority,
                "not_before": None,
                "own_id": False,
                # Last: all reserved fields were found, so there is no other if there are no more.
                "attributes": {} if len(document) == len(RESERVED) else _attributes(document),
            }
            has_shape = type(fields["event_id"]) is str and type(fields["payload"]) is dict
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            has_shape = False
        if not has_shape or fields["occurred_at"].tzinfo is None:
            return cls.from_json(text, aggregate_type=aggregate_type, aggregate_id=aggregate_id, priority=priority)
        envelope = object.__new__(cls)
        object.__setattr__(envelope, "__dict__", fields)
        return envelope

    @classmethod
    def unreadable(cls, event_id: str, event_type: str, text: str) -> Self:
        """Return a placeholder for a stored envelope that can no longer be read, for operators to look at."""
        placeholder = cls(type="unreadable", payload={"stored": text})
        placeholder.__dict__.update(type=event_type, event_id=event_id, trace_id=event_id, own_id=False)
        return placeholder


def _attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in RESERVED}


def format_time(moment: datetime) -> str:
    """Format a time as the envelope does: UTC, milliseconds, ``Z``."""
    return _format_utc(moment if moment.tzinfo is UTC else moment.astimezone(UTC))


@lru_cache(maxsize=64)  # in UTC equal times are the same instant; elsewhere they may be an hour apart (fold)
def _format_utc(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_time(text: object, what: str) -> datetime:
    """Parse an ISO 8601 time with a time zone; raise :class:`InvalidEnvelope` naming ``what`` if it is not one."""
    try:
        moment = datetime.fromisoformat(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidEnvelope(f"{what} {text!r} is not an ISO 8601 time") from None
    if moment.tzinfo is None:
        raise InvalidEnvelope(f"{what} {text!r} has no time zone; write it in UTC with a Z")
    return moment


def _check_fields(envelope: Envelope) -> None:
    if not envelope.own_id:
        try:
            check_event_id(envelope.event_id)
        except InvalidName as error:
            raise InvalidEnvelope(str(error)) from None
    _check_label(envelope, "type", envelope.type)
    if envelope.trace_id is not envelope.event_id:
        _check_label(envelope, "trace_id", envelope.trace_id)
    if envelope.aggregate_type not in (None, ""):
        _check_label(envelope, "aggregate_type", envelope.aggregate_type)
    if envelope.aggregate_id not in (None, ""):
        _check_label(envelope, "aggregate_id", envelope.aggregate_id)
    if not isinstance(envelope.payload, (dict, Mapping)):  # a dict is recognised at once
        kind = type(envelope.payload).__name__
        raise InvalidEnvelope(f"event {envelope.event_id}: payload must be a mapping, not {kind}")
    if envelope.attributes and (taken := RESERVED.intersection(envelope.attributes)):
        raise InvalidEnvelope(
            f"event {envelope.event_id}: attribute {min(taken)!r} is a field of the envelope; rename it"
        )
    if envelope.priority not in PRIORITIES:
        raise InvalidEnvelope(
            f"event {envelope.event_id}: priority must be one of {', '.join(PRIORITIES)}, not {envelope.priority!r}"
        )
    if not isinstance(envelope.schema_version, int):
        raise InvalidEnvelope(f"event {envelope.event_id}: schema_version must be a whole number")
    _check_moment(envelope, "occurred_at", envelope.occurred_at)
    if envelope.not_before is not None:
        _check_moment(envelope, "not_before", envelope.not_before)


def _check_label(envelope: Envelope, name: str, value: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_LABEL_CHARS:
        raise InvalidEnvelope(
            f"event {envelope.event_id}: {name} must be text of 1 to {_MAX_LABEL_CHARS} characters, not {value!r:.80}"
        )
    if "\0" in value:
        raise InvalidEnvelope(f"event {envelope.event_id}: {name} contains a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidEnvelope(f"event {envelope.event_id}: {name} is not text: {error}") from None


def _check_moment(envelope: Envelope, name: str, moment: datetime) -> None:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidEnvelope(
            f"event {envelope.event_id}: {name} must be a datetime with a time zone, not {moment!r:.80}"
        )


def _blame(envelope: Envelope, error: Exception) -> str:
    """Return which key cannot be serialised: the message of the encoder only names the type."""
    for where, value in _leaves({"attributes": envelope.attributes, "payload": envelope.payload}, "", 0):
        try:
            encode(value).encode()
        except (TypeError, ValueError) as reason:
            return f"{where}: {reason}"
    return str(error) or type(error).__name__


def _leaves(value: object, where: str, depth: int) -> Iterator[tuple[str, object]]:
    if depth > 50:
        return
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{where}.{key}" if where else str(key), depth + 1)
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{where}[{index}]", depth + 1)
    else:
        yield where, value


def _find_nul(value: object, where: str) -> str | None:
    if isinstance(value, str):
        return where if "\0" in value else None
    if isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{where}.{key}" if where else str(key)
            if isinstance(key, str) and "\0" in key:
                return f"a key of {where or 'the envelope'}"
            if found := _find_nul(item, place):
                return found
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if found := _find_nul(item, f"{where}[{index}]"):
                return found
    return None
