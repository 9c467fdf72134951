"""Streams whose events are documents of the application's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kingdom.bus.envelope import Envelope, parse_time
from kingdom.bus.errors import InvalidEnvelope, InvalidName
from kingdom.bus.names import check_event_id

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DocumentForm:
    """Which fields of a document are what the bus needs to know.

    Where states are seen from outside (files), such a document is stored as it is: its fields ``id``, ``type``,
    ``time`` and ``priority`` are the envelope's, the whole of it is the envelope's payload, and its field ``status``
    always says the name of the state it lies in or, once it is DONE, one of ``outcomes`` if it was settled with that.
    ``None`` for a field means that documents have none. Other stores keep the document as payload.
    """

    id: str = "id"
    type: str = "type"
    time: str | None = "created_at"
    priority: str | None = "priority"
    status: str | None = "status"
    outcomes: tuple[str, ...] = ()

    def envelope(self, document: Mapping[str, Any]) -> Envelope:
        """The envelope of a document, or :class:`InvalidEnvelope` that says what is wrong with it."""
        more: dict[str, Any] = {}
        if self.time is not None and document.get(self.time) is not None:
            more["occurred_at"] = parse_time(document[self.time], self.time)
        if self.priority is not None and document.get(self.priority) is not None:
            more["priority"] = document[self.priority]
        try:
            event_id = check_event_id(self._text(document, self.id))
        except InvalidName as error:
            raise InvalidEnvelope(f"its {self.id}: {error}") from None
        return Envelope(type=self._text(document, self.type), payload=document, event_id=event_id, **more)

    @staticmethod
    def _text(document: Mapping[str, Any], field: str) -> str:
        value = document.get(field)
        if isinstance(value, str) and value:
            return value
        raise InvalidEnvelope(f"its {field!r} must be text, not {value!r:.60}" if value else f"it has no {field!r}")
