"""The document of an event: the envelope's JSON form on one line, and the routing under the key ``bus``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.bus.envelope import Envelope, parse_time
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.jsontext import encode as _encode
from kingdom.bus.stream_state import Entry, moment, new_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.bus.document_form import DocumentForm

KEY: Final = "bus"
_MICRO: Final = 1_000_000
_encode_ascii = json.JSONEncoder(allow_nan=False).encode


class Document(NamedTuple):
    """An event as it lies in its file."""

    envelope: Envelope
    bus: Mapping[str, Any]
    own: bool = False  # a document of the application's own, without our routing

    def entry(self, now: float) -> Entry:
        """The entry of an event that nothing but its document is known of."""
        if self.own:  # written by whoever: a time to come must not keep it waiting
            created = min(self.envelope.occurred_at.timestamp(), now)
            return new_entry(self.envelope, seq=place(created, 0), now=created)
        created = parse_time(self.bus["createdAt"], "bus.createdAt").timestamp() if "createdAt" in self.bus else now
        index = self.bus.get("index", 0)
        return new_entry(self.envelope, seq=place(created, index if isinstance(index, int) else 0), now=created)


def place(created_at: float, index: int) -> int:
    """The place in publish order of the ``index``-th event of a call. It is the time: known without a ledger, too."""
    return round(created_at * _MICRO) + index


def encode(envelope: Envelope, max_bytes: int, created_at: str, index: int) -> bytes:
    """The document of an event published at ``created_at`` (of :func:`write_time`), or :class:`InvalidEnvelope`."""
    text = envelope.to_json(max_bytes)
    bus: dict[str, Any] = {}
    if envelope.aggregate_type is not None:
        bus["aggregateType"] = envelope.aggregate_type
    if envelope.aggregate_id is not None:
        bus["aggregateId"] = envelope.aggregate_id
    if envelope.priority != "normal":
        bus["priority"] = envelope.priority
    if envelope.not_before is not None:
        bus["notBefore"] = envelope.not_before.isoformat()
    if KEY in envelope.attributes:  # an attribute of that name moves over for ours
        document = envelope.to_dict()
        bus["attribute"] = document.pop(KEY)
        text = _encode(document)
    rest = f",{_encode(bus)[1:-1]}" if bus else ""
    place = f',"index":{index}' if index else ""
    return f'{text[:-1]},"{KEY}":{{"createdAt":"{created_at}"{place}{rest}}}}}\n'.encode()


def write_time(seconds: float) -> str:
    """A time of the clock as it stands in documents."""
    return moment(seconds).isoformat(timespec="microseconds")


def decode(data: bytes, event_id: str, form: DocumentForm | None = None) -> Document:
    """Read a document, or raise :class:`InvalidEnvelope` that says why it is none."""
    document = parse(data)
    if form is not None:
        envelope = form.envelope(document)
        if envelope.event_id != event_id:
            raise InvalidEnvelope(
                f"its {form.id} is {envelope.event_id!r}, so its file must be {envelope.event_id}.json"
            )
        return Document(envelope, {}, own=True)
    bus = document.pop(KEY, {})
    if not isinstance(bus, dict):
        raise InvalidEnvelope(f"the key {KEY!r} holds the routing and must be a JSON object")
    if "attribute" in bus:
        document[KEY] = bus["attribute"]
    envelope = Envelope.from_dict(
        document,
        aggregate_type=bus.get("aggregateType"),
        aggregate_id=bus.get("aggregateId"),
        priority=bus.get("priority", "normal"),
        not_before=_time(bus.get("notBefore")),
    )
    if envelope.event_id != event_id:
        raise InvalidEnvelope(f"its eventId is {envelope.event_id!r}, so its file must be {envelope.event_id}.json")
    return Document(envelope, bus)


def parse(data: bytes) -> dict[str, Any]:
    """The JSON object in a file, or :class:`InvalidEnvelope`."""
    try:
        # Ours begin with a brace, in UTF-8. For others json finds out the encoding, which takes longer.
        document = json.loads(data.decode() if data[:1] == b"{" else data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidEnvelope(f"not JSON: {error}" if data.strip() else "the file is empty") from None
    if not isinstance(document, dict):
        raise InvalidEnvelope(f"an envelope is a JSON object, not {type(document).__name__}")
    return document


def encode_form(document: Mapping[str, Any], status: tuple[str, str] | None = None) -> bytes:
    """A document of the application's own: a line for each field, with the ``status`` field (name, word) as given."""
    fields = {**document, status[0]: status[1]} if status else document
    try:
        return _lines(fields, _encode)
    except UnicodeEncodeError:  # half a surrogate pair: JSON can say it, UTF-8 cannot
        return _lines(fields, _encode_ascii)


def _lines(fields: Mapping[str, Any], encode: Callable[[Any], str]) -> bytes:
    body = ",\n".join(f"  {encode(str(name))}: {encode(value)}" for name, value in fields.items())
    return f"{{\n{body}\n}}\n".encode()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _time(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text, "bus.notBefore")
