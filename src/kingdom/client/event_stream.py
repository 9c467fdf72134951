"""Live events over server-sent events, resumed where a connection broke."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kingdom.base.backoff import backoff
from kingdom.client.connection import Connection, Refused, ServerAway, TooOld

_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0
_BUSY_STATUSES: Final = (429, 502, 503, 504)


class EventStream:
    """The live events after a number. Each connection goes on where the one before ended."""

    def __init__(
        self, connection: Connection, *, types: Iterable[str], workflow_id: str | None, last: int | None
    ) -> None:
        self._connection = connection
        names = types if isinstance(types, str) else ",".join(types)
        self._query = {"types": names or None, "workflowId": workflow_id}
        self._last = last

    def connect(self) -> Iterator[dict[str, Any]]:
        """Yield events until the connection breaks. Raises the error of one that cannot be made."""
        connected = False
        try:
            for message in self._messages():
                connected = True
                if message["type"] == "event":
                    yield message
        except ServerAway:
            if not connected:
                raise

    def reconnect(self, patience: float | None) -> Iterator[dict[str, Any]]:
        """The same, after tries to connect again. Raises ``ServerAway`` if none succeeds for ``patience`` seconds."""
        broken_at = time.monotonic()
        for attempt in itertools.count():
            time.sleep(backoff(attempt, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0.2))
            try:
                yield from self.connect()
            except (ServerAway, Refused) as error:
                if isinstance(error, Refused) and error.status not in _BUSY_STATUSES:
                    raise
                if patience is not None and time.monotonic() - broken_at > patience:
                    raise
            else:
                return

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages of one connection, and keep the number that each of them reaches."""
        headers = {"Accept": "text/event-stream"} | ({} if self._last is None else {"Last-Event-ID": str(self._last)})
        data: list[str] = []
        number = self._last
        for line in self._connection.lines("/api/stream", query=self._query, headers=headers):
            if line.startswith("id:"):
                number = int(line[3:])
            elif line.startswith("data:"):
                data.append(line[5:].lstrip())
            elif not line:
                message, data = (json.loads("\n".join(data)) if data else None), []
                if message is not None and message["type"] == "reset":
                    raise TooOld(message["sequenceNumber"], message["oldestSequenceNumber"])
                self._last = number  # also of a sign of life: no event up to this number matched
                if message is not None:
                    yield message
