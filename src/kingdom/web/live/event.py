"""Live events: as objects, and in the form in which they are stored and sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal

MAX_DATA_BYTES: Final = 256 * 1024  # per event; clients accept messages of up to 1 MiB by default
_encode_utf8: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event of the court (its journal) or of a workflow."""

    sequence: int
    """Number in the feed, without gaps, also across restarts of the server."""
    source: str
    """``journal`` or ``workflow``."""
    type: str
    occurred_at: str
    data: dict[str, Any]
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    """Number within the workflow, without gaps."""
    actor: str | None = None
    """Who wrote the journal line."""


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """An event before it has a feed number."""

    source: Literal["journal", "workflow"]
    type: str
    occurred_at: str
    data: dict[str, Any]
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    actor: str | None = None
    attempt: int | None = None  # of the Work or Task it tells of

    def body(self) -> str:
        """Return its JSON, which is created once and sent to all clients."""
        document: dict[str, Any] = {"source": self.source, "type": self.type, "occurredAt": self.occurred_at}
        if self.actor is not None:
            document["actor"] = self.actor
        if self.workflow_id is not None:
            document["workflowId"] = self.workflow_id
            document["workflowSequence"] = self.workflow_sequence
        if self.attempt is not None:
            document["attempt"] = self.attempt
        body = encode_json({**document, "data": self.data})
        if len(body) > MAX_DATA_BYTES:
            body = encode_json({**document, "data": {}, "truncated": True})
        return body


@dataclass(slots=True)
class FeedEvent:
    """An event with its feed number and its JSON."""

    sequence: int
    type: str
    body: str
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    _message: str | None = field(default=None, repr=False)

    @property
    def message(self) -> str:
        """The message for clients that subscribe to the whole feed."""
        if self._message is None:
            self._message = event_message(self.sequence, self.workflow_id, self.body)
        return self._message

    def event(self) -> LiveEvent:
        """Parse the event."""
        found = json.loads(self.body)
        return LiveEvent(
            self.sequence,
            found["source"],
            self.type,
            found["occurredAt"],
            found["data"],
            self.workflow_id,
            self.workflow_sequence,
            found.get("actor"),
        )


def event_message(number: int, workflow_id: str | None, body: str) -> str:
    """Return the message for one event; ``number`` is its number in the client's subscription."""
    owner = encode_json(workflow_id)
    return f'{{"type":"event","sequenceNumber":{number},"workflowId":{owner},"event":{body}}}'


def encode_json(document: Any) -> str:
    """Encode any document as JSON that is valid UTF-8 and that browsers can parse."""
    try:
        text = _encode_utf8(document)
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return _encode_ascii(document)
    except ValueError:  # NaN and infinity are not JSON: they become null
        return _encode_utf8(json.loads(json.dumps(document), parse_constant=lambda _: None))
    return text
