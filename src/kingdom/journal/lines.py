"""Encode an event as one line of JSON, and decode it.

``{"ts":"2026-02-07T10:00:00Z","type":"task.started","actor":"gen-pr","data":{"task_id":"…"}}`` and a newline.
Emitters may only write what the catalog allows. Readers accept any event and keep fields they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from kingdom.journal.catalog import CATALOG, EventData
from kingdom.journal.errors import InvalidEvent, InvalidLine

MAX_LINE_BYTES: Final = 1024 * 1024  # including the newline: what a reader reads at once
CUT_TO_CHARACTERS: Final = 10_000  # of each text in a line that would be too long: four of them always fit
_KEYS: Final = frozenset({"ts", "type", "actor", "data"})

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
# Without allow_nan=False: others may have written NaN.
_encode_found = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """An event of a known type. ``extra`` has the unknown fields of its data, ``attributes`` those of the line."""

    ts: str
    actor: str
    data: EventData
    extra: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The name of its type in the catalog."""
        return self.data.spec.name

    @property
    def at(self) -> datetime:
        return parse_ts(self.ts)

    @property
    def fields(self) -> dict[str, Any]:
        """All of its data by JSON key, known fields and unknown ones."""
        return {**self.data.to_dict(), **self.extra}

    def to_json(self) -> str:
        """Return the line it was read from, up to white space."""
        return _line(self.ts, self.type, self.actor, self.fields, self.attributes)


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event that the catalog does not describe; ``reason`` says why."""

    ts: str
    type: str
    actor: str
    fields: Mapping[str, Any]
    reason: str
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def at(self) -> datetime:
        return parse_ts(self.ts)

    def to_json(self) -> str:
        """Return the line it was read from, up to white space."""
        return _line(self.ts, self.type, self.actor, self.fields, self.attributes)


Entry = JournalEvent | UnknownEvent


def parse(line: str | bytes) -> Entry:
    """Parse one line. Raises :class:`InvalidLine` when it is not an event, known or unknown."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidLine(f"not JSON: {error}") from None
    return entry_of(document)


def entry_of(document: object) -> Entry:
    """Make an event of a decoded line. Raises :class:`InvalidLine`."""
    if not isinstance(document, dict):
        raise InvalidLine(f"an event is a JSON object, not {type(document).__name__}")
    try:
        ts, kind, actor, data = document["ts"], document["type"], document["actor"], document.get("data", {})
    except KeyError as error:
        raise InvalidLine(f"no {error.args[0]}") from None
    for name, value, wanted in (("ts", ts, str), ("type", kind, str), ("actor", actor, str), ("data", data, dict)):
        if not isinstance(value, wanted):
            raise InvalidLine(f"{name} must be {'an object' if wanted is dict else 'text'}, not {value!r:.80}")
    parse_ts(ts)
    attributes = {key: document[key] for key in document if key not in _KEYS} if len(document) > len(_KEYS) else {}
    spec = CATALOG.get(kind)
    if spec is None:
        return UnknownEvent(ts, kind, actor, data, f"{kind} is not in the catalog", attributes)
    known = {item.key: item.name for item in spec.fields}
    try:
        typed = spec.make(**{name: data[key] for key, name in known.items()})
    except KeyError as error:
        return UnknownEvent(ts, kind, actor, data, f"{kind}: no {error.args[0]} in data", attributes)
    except InvalidEvent as error:
        return UnknownEvent(ts, kind, actor, data, str(error), attributes)
    extra = {key: data[key] for key in data if key not in known} if len(data) > len(known) else {}
    return JournalEvent(ts, actor, typed, extra, attributes)


def encode_data(data: EventData) -> bytes:
    """Encode an event's data for :func:`compose`, cutting long texts where the line would be too long.

    A cut text ends in ``… [cut: N characters in all]``. No event is refused for its length: the failure of a task must
    be recorded however long its error is.
    """
    encoded = _encode_data(data.to_dict(), data.spec.name)
    if len(encoded) > MAX_LINE_BYTES - 1024:  # the rest of a line is far shorter than that
        encoded = _encode_data({key: _cut(value) for key, value in data.to_dict().items()}, data.spec.name)
    return encoded


def compose(ts: str, event_type: str, actor: str, data: bytes) -> bytes:
    """Return the line. Type and actor are from the catalog, so they have no characters that JSON escapes."""
    return b'{"ts":"%b","type":"%b","actor":"%b","data":%b}\n' % (
        ts.encode(),
        event_type.encode(),
        actor.encode(),
        data,
    )


def format_ts(seconds: float) -> str:
    """Format a time as the journal writes it: UTC, whole seconds, ``Z``."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()[:19] + "Z"


def parse_ts(text: str) -> datetime:
    """Parse an ISO 8601 time. Without a time zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidLine(f"ts {text!r:.80} is not an ISO 8601 time") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _encode_data(document: dict[str, Any], name: str) -> bytes:
    try:
        return _encode(document).encode()
    except UnicodeEncodeError:  # a lone surrogate, as in a file name that is not UTF-8
        return _encode_ascii(document).encode()
    except ValueError as error:
        endless = [key for key, value in document.items() if isinstance(value, float) and value - value != 0]
        wrong = f"{endless[0]} must be a finite number, not {document[endless[0]]}" if endless else str(error)
        raise InvalidEvent(f"{name}: {wrong}") from None


def _cut(value: object) -> object:
    if not isinstance(value, str) or len(value) <= CUT_TO_CHARACTERS:
        return value
    return f"{value[:CUT_TO_CHARACTERS]}… [cut: {len(value):,} characters in all]"


def _line(ts: str, kind: str, actor: str, data: Mapping[str, Any], attributes: Mapping[str, Any]) -> str:
    return _encode_found({"ts": ts, "type": kind, "actor": actor, "data": dict(data), **attributes})
