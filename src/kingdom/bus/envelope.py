"""The envelope of an event: its fields, its names and ids, and its JSON form."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self
from uuid import UUID

from kingdom.base.jsontext import decode, encode, quoted
from kingdom.bus.errors import InvalidEnvelope, InvalidName

# What streams, events and workers may be called.
#
# Ids become file names, keys and parts of paths, so the rule is one and strict on every transport: the characters
# ``A-Z a-z 0-9 . _ : @ + -``, no leading dot, at most 200 bytes. Streams follow the same rule at 100 bytes.


is_name = re.compile(r"[A-Za-z0-9_:@+\-][A-Za-z0-9._:@+\-]*\Z").match
_FIRST_BAD = re.compile(r"[^A-Za-z0-9._:@+\-]").search

MAX_ID_BYTES = 200
MAX_STREAM_BYTES = 100
_MOST_STREAMS = 1000
_streams: set[str] = set()  # names found good: a program has few, and uses them all the time


def check_event_id(value: str) -> str:
    """Return ``value`` when it may be an event id; raise :class:`InvalidName` that says why not."""
    return _check("event id", value, MAX_ID_BYTES)


def check_stream(value: str) -> str:
    """Return ``value`` when it may be a stream name; raise :class:`InvalidName` that says why not."""
    if value.__class__ is str and value in _streams:
        return value
    _check("stream name", value, MAX_STREAM_BYTES)
    if len(_streams) < _MOST_STREAMS:
        _streams.add(value)
    return value


def check_worker(value: str) -> str:
    """Return ``value`` when it may be a worker's name; raise :class:`InvalidName` that says why not."""
    return _check("worker name", value, MAX_ID_BYTES)


def _check(what: str, value: str, limit: int) -> str:
    if isinstance(value, str) and len(value) <= limit and is_name(value):
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
    elif bad := _FIRST_BAD(value):
        reason = f"{bad.group()!r} at position {bad.start()} is not allowed"
    else:
        reason = "it is not allowed"
    raise InvalidName(f"{what} {shown!r}: {reason}; {rule}")


# Event ids that sort by the time they were made (UUID version 7).


_AT_ONCE: Final = 128  # random tails made at a time: one call of the system for all of them
_HEX: Final = 20  # digits of each
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class _Ids:
    """Makes ids: the part that is the time is written once a millisecond, the random one drawn in advance."""

    __slots__ = ("_tails", "_time")

    def __init__(self) -> None:
        self._time = (0, "")
        self.forget()

    def forget(self) -> None:
        """Draw anew: a process that was forked must not use what its parent has drawn."""
        self._tails: Iterator[str] = iter(())

    def __call__(self) -> str:
        millis = time.time_ns() // 1_000_000
        last, head = self._time
        if millis != last:
            head = f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7"  # version 7 leads the third group
            self._time = (millis, head)  # one assignment: threads see both or neither
        for tail in self._tails:  # of a list: two threads never get the same one
            return head + tail
        self._tails = iter(_tails())
        return self()


def _tails() -> list[str]:
    noise = os.urandom(_AT_ONCE * _HEX // 2).hex()
    # The variant of RFC 9562 (one of 8, 9, a, b) leads the fourth group.
    return [
        f"{noise[at : at + 3]}-{_VARIANT[noise[at + 3]]}{noise[at + 4 : at + 7]}-{noise[at + 7 : at + 19]}"
        for at in range(0, len(noise), _HEX)
    ]


_ids: Final = _Ids()
os.register_at_fork(after_in_child=_ids.forget)


def new_event_id() -> str:
    """Return a new UUIDv7 as text.

    Its leading bits are the time, so ids made one after another lie side by side in every index: with random
    ids, each insert into a large table touches a page of its own.
    """
    return _ids()


# The envelope: what every event looks like, whatever carries it.
#
# Its JSON form is fixed, so that an event means the same in a file, a row or a Kafka record::
#
# {"schemaVersion": 1, "eventId": "…", "type": "CreateOrderAttempt", "occurredAt": "2026-02-17T00:00:00.000Z",
# "traceId": "…", …attributes…, "payload": {…}}
#
# ``aggregate_type``, ``aggregate_id``, ``priority`` and ``not_before`` say how the event is *routed*. They are not part
# of that form: each transport keeps them where it can use them (columns, a key, a header).


Priority = Literal["high", "normal", "low"]
PRIORITIES: Final[tuple[Priority, ...]] = ("high", "normal", "low")  # in the order they are claimed
RESERVED: Final = frozenset({"schemaVersion", "eventId", "type", "occurredAt", "traceId", "payload"})
DEFAULT_MAX_BYTES: Final = 1024 * 1024
_formatted: tuple[datetime | None, str] = (None, "")  # the time that was formatted last
_MAX_LABEL: Final = 200  # characters of type, aggregate_type, aggregate_id and trace_id


class _Now:
    """The time in the milliseconds that the JSON form has; the same object, and text, for all of one millisecond."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = (0, datetime.fromtimestamp(0, UTC))

    def __call__(self) -> datetime:
        millis = time.time_ns() // 1_000_000
        last, moment = self._last
        if millis != last:
            moment = datetime.fromtimestamp(millis // 1000, UTC).replace(microsecond=millis % 1000 * 1000)
            self._last = (millis, moment)  # one assignment: threads see both or neither
        return moment


_now: Final = _Now()
_NOT_GIVEN: Final[Any] = object()


@dataclass(frozen=True, slots=True, init=False)
class Envelope:
    """One event: what happened (``type``, ``payload``), to what (``aggregate_*``), and how it is routed."""

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
    own_id: bool = field(init=False, repr=False, compare=False)  # no store can know it before it is published

    def __init__(
        self,
        type: str,  # noqa: A002 - the name of the specification
        payload: Mapping[str, Any] = _NOT_GIVEN,
        aggregate_type: str | None = None,
        aggregate_id: str | None = None,
        attributes: Mapping[str, Any] = _NOT_GIVEN,
        event_id: str = _NOT_GIVEN,
        trace_id: str = "",
        occurred_at: datetime = _NOT_GIVEN,
        schema_version: int = 1,
        priority: Priority = "normal",
        not_before: datetime | None = None,
    ) -> None:
        """Make an event of a ``type``. Without an ``event_id`` it gets a new one, and the time is now.

        An event without a ``trace_id`` starts a trace, and gives it its own id.
        """
        # Written by hand because it is on the path of every publish, and what dataclass makes takes longer.
        own_id = event_id is _NOT_GIVEN
        _put_type(self, type)
        _put_payload(self, {} if payload is _NOT_GIVEN else payload)
        _put_aggregate_type(self, aggregate_type)
        _put_aggregate_id(self, aggregate_id)
        _put_attributes(self, {} if attributes is _NOT_GIVEN else attributes)
        _put_event_id(self, new_event_id() if own_id else event_id)
        _put_trace_id(self, trace_id)
        _put_occurred_at(self, _now() if occurred_at is _NOT_GIVEN else occurred_at)
        _put_schema_version(self, schema_version)
        _put_priority(self, priority)
        _put_not_before(self, not_before)
        _put_own_id(self, own_id)
        if not _is_plain(self):
            if isinstance(event_id, UUID):
                _put_event_id(self, str(event_id))
            if isinstance(aggregate_id, (UUID, int)):
                _put_aggregate_id(self, str(aggregate_id))
            _check_fields(self)
        if not trace_id:
            _put_trace_id(self, self.event_id)
        # The JSON form carries milliseconds: what is read back must equal what was sent.
        if occurred_at is not _NOT_GIVEN and (spare := occurred_at.microsecond % 1000):
            _put_occurred_at(self, occurred_at.replace(microsecond=occurred_at.microsecond - spare))

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
        """Return the JSON form as text, or raise :class:`InvalidEnvelope` that says what cannot be stored."""
        try:
            text = self._text()
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

    def _text(self) -> str:
        """What encoding :meth:`to_dict` gives, without making the dictionary."""
        payload = self.payload if isinstance(self.payload, dict) else dict(self.payload)
        more = f"{encode(dict(self.attributes))[1:-1]}," if self.attributes else ""
        return (
            f'{{"schemaVersion":{self.schema_version:d},"eventId":{quoted(self.event_id)},"type":{quoted(self.type)},'
            f'"occurredAt":"{format_time(self.occurred_at)}","traceId":{quoted(self.trace_id)},'
            f'{more}"payload":{encode(payload)}}}'
        )

    def mark_stored(self) -> None:
        """Note that a store has it: from now on its id is one that may be there already, whoever made it."""
        _put_own_id(self, False)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], **routing: Any) -> Self:
        """Rebuild an envelope from its JSON form; unknown keys are attributes and survive the round trip."""
        if not isinstance(document, Mapping):
            raise InvalidEnvelope(f"an envelope is a JSON object, not {type(document).__name__}")
        try:
            event_id, event_type, occurred_at = document["eventId"], document["type"], document["occurredAt"]
        except KeyError as error:
            raise InvalidEnvelope(f"the envelope has no {error.args[0]}") from None
        return cls(
            type=event_type,
            payload=document.get("payload", {}),
            attributes={key: value for key, value in document.items() if key not in RESERVED},
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
        """Rebuild an envelope that a transport stored: checked when it was published, so only its shape is looked at.

        On the hot path of every claim. What does not look right goes through :meth:`from_json`, which says why.
        """
        try:
            document = decode(text)
            occurred_at = datetime.fromisoformat(document["occurredAt"])
            event_id, event_type, trace_id = document["eventId"], document["type"], document["traceId"]
            payload, schema_version = document["payload"], document["schemaVersion"]
            plain = type(event_id) is str and type(payload) is dict and occurred_at.tzinfo is not None
        except (ValueError, TypeError, KeyError, RecursionError):
            plain = False
        if not plain:
            routing = {"aggregate_type": aggregate_type, "aggregate_id": aggregate_id, "priority": priority}
            return cls.from_json(text, **routing)
        extra = len(document) > len(RESERVED)
        envelope = object.__new__(cls)
        _put_type(envelope, event_type)
        _put_payload(envelope, payload)
        _put_aggregate_type(envelope, aggregate_type)
        _put_aggregate_id(envelope, aggregate_id)
        _put_attributes(envelope, {key: document[key] for key in document if key not in RESERVED} if extra else {})
        _put_event_id(envelope, event_id)
        _put_trace_id(envelope, trace_id)
        _put_occurred_at(envelope, occurred_at)
        _put_schema_version(envelope, schema_version)
        _put_priority(envelope, priority)
        _put_not_before(envelope, None)
        _put_own_id(envelope, False)
        return envelope

    @classmethod
    def unreadable(cls, event_id: str, event_type: str, text: str) -> Self:
        """Stand in for a stored envelope that can no longer be read, so that operators can still look at it."""
        envelope = cls(type="unreadable", payload={"stored": text})
        _put_event_id(envelope, event_id)
        _put_trace_id(envelope, event_id)
        _put_type(envelope, event_type)
        _put_own_id(envelope, False)
        return envelope


# How a slot of a frozen object is filled in half the time that object.__setattr__ takes, which looks its name up.
(
    _put_type, _put_payload, _put_aggregate_type, _put_aggregate_id, _put_attributes, _put_event_id, _put_trace_id,
    _put_occurred_at, _put_schema_version, _put_priority, _put_not_before, _put_own_id,
) = (vars(Envelope)[slot.name].__set__ for slot in fields(Envelope))  # fmt: skip


def format_time(moment: datetime) -> str:
    """Format a time as the envelope does: UTC, milliseconds, ``Z``."""
    global _formatted
    last, text = _formatted
    if moment is last:  # events made within one millisecond share their time
        return text
    given = moment
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    text = moment.isoformat(timespec="milliseconds")[:-6] + "Z"
    _formatted = (given, text)
    return text


def parse_time(text: object, what: str) -> datetime:
    """Parse an ISO 8601 time with a zone; raise :class:`InvalidEnvelope` naming ``what`` when it is none."""
    try:
        moment = datetime.fromisoformat(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidEnvelope(f"{what} {text!r} is not an ISO 8601 time") from None
    if moment.tzinfo is None:
        raise InvalidEnvelope(f"{what} {text!r} has no time zone; write it in UTC with a Z")
    return moment


def _is_plain(envelope: Envelope) -> bool:
    """Whether everything is as it nearly always is, so that nothing need be looked at one by one."""
    event_id, kind, trace_id = envelope.event_id, envelope.type, envelope.trace_id
    aggregate_type, aggregate_id = envelope.aggregate_type, envelope.aggregate_id
    return (
        (envelope.own_id or (type(event_id) is str and len(event_id) <= MAX_ID_BYTES and is_name(event_id) is not None))
        and type(kind) is str
        and 0 < len(kind) <= _MAX_LABEL
        and type(trace_id) is str
        and len(trace_id) <= _MAX_LABEL
        and (aggregate_type is None or (type(aggregate_type) is str and len(aggregate_type) <= _MAX_LABEL))
        and (aggregate_id is None or (type(aggregate_id) is str and len(aggregate_id) <= _MAX_LABEL))
        and (labels := f"{kind}{trace_id}{aggregate_type}{aggregate_id}").isascii()
        and "\0" not in labels
        and type(envelope.payload) is dict
        and not envelope.attributes
        and envelope.not_before is None
        and envelope.priority == "normal"
        and type(envelope.schema_version) is int
        and type(envelope.occurred_at) is datetime
        and envelope.occurred_at.tzinfo is not None
    )


def _check_fields(envelope: Envelope) -> None:
    try:
        check_event_id(envelope.event_id)
    except InvalidName as error:
        raise InvalidEnvelope(str(error)) from None
    for name in ("type", "trace_id", "aggregate_type", "aggregate_id"):
        value = getattr(envelope, name)
        if value is None and name.startswith("aggregate"):
            continue
        if not isinstance(value, str) or len(value) > _MAX_LABEL or (name == "type" and not value):
            raise InvalidEnvelope(
                f"event {envelope.event_id}: {name} must be text of 1 to {_MAX_LABEL} characters, not {value!r:.80}"
            )
        if "\0" in value:
            raise InvalidEnvelope(f"event {envelope.event_id}: {name} contains a NUL character")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidEnvelope(f"event {envelope.event_id}: {name} is not text: {error}") from None
    if not isinstance(envelope.payload, Mapping):
        raise InvalidEnvelope(
            f"event {envelope.event_id}: payload must be a mapping, not {type(envelope.payload).__name__}"
        )
    _check_routing(envelope)


def _check_routing(envelope: Envelope) -> None:
    if envelope.attributes and (taken := RESERVED.intersection(envelope.attributes)):
        raise InvalidEnvelope(
            f"event {envelope.event_id}: attribute {min(taken)!r} is a field of the envelope; name it otherwise"
        )
    if envelope.priority not in PRIORITIES:
        raise InvalidEnvelope(
            f"event {envelope.event_id}: priority must be one of {', '.join(PRIORITIES)}, not {envelope.priority!r}"
        )
    if not isinstance(envelope.schema_version, int):
        raise InvalidEnvelope(f"event {envelope.event_id}: schema_version must be a whole number")
    for name in ("occurred_at", "not_before"):
        moment = getattr(envelope, name)
        if moment is None and name == "not_before":
            continue
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise InvalidEnvelope(
                f"event {envelope.event_id}: {name} must be a datetime with a time zone, not {moment!r:.80}"
            )


def _blame(envelope: Envelope, error: Exception) -> str:
    """Say which key cannot be serialised; the encoder's own message names only the type."""
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
