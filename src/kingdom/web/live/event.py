"""Something that happened: as code sees it, and as it travels."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal

MAX_DATA_BYTES: Final = 256 * 1024  # of one event: clients take a message of up to 1 MiB by default
_encode_utf8: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that happened, to the court (its journal) or to a workflow."""

    sequence: int
    """Counts over everything, without a gap, also across restarts of the server."""
    source: str
    """``journal`` or ``workflow``."""
    type: str
    occurred_at: str
    data: dict[str, Any]
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    """Counts per workflow, without a gap."""
    actor: str | None = None
    """Who told the journal."""


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """An event before it has its number."""

    source: Literal["journal", "workflow"]
    type: str
    occurred_at: str
    data: dict[str, Any]
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    actor: str | None = None

    def body(self) -> str:
        """Its JSON. Made once, and sent to everybody."""
        document: dict[str, Any] = {"source": self.source, "type": self.type, "occurredAt": self.occurred_at}
        if self.actor is not None:
            document["actor"] = self.actor
        if self.workflow_id is not None:
            document["workflowId"] = self.workflow_id
            document["workflowSequence"] = self.workflow_sequence
        body = encode_json({**document, "data": self.data})
        if len(body) > MAX_DATA_BYTES:
            body = encode_json({**document, "data": {}, "truncated": True})
        return body


@dataclass(slots=True)
class FeedEvent:
    """An event with its number, ready to be sent."""

    sequence: int
    type: str
    body: str
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    _message: str | None = field(default=None, repr=False)

    @property
    def message(self) -> str:
        """What a client that wants everything is sent."""
        if self._message is None:
            self._message = event_message(self.sequence, self.workflow_id, self.body)
        return self._message

    def event(self) -> LiveEvent:
        """As code sees it."""
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
    """What a client is sent of one event; ``number`` is the one it counts by."""
    owner = encode_json(workflow_id)
    return f'{{"type":"event","sequenceNumber":{number},"workflowId":{owner},"event":{body}}}'


def encode_json(document: Any) -> str:
    """The JSON of a document, whatever somebody wrote into a log: always UTF-8, and what browsers can read."""
    try:
        text = _encode_utf8(document)
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return _encode_ascii(document)
    except ValueError:  # NaN and infinity are not JSON: they become null
        return _encode_utf8(json.loads(json.dumps(document), parse_constant=lambda _: None))
    return text
