"""The client: one method per operation, iteration over pages, and live events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kingdom.client.connection import TooOld
from kingdom.client.court_operations import CourtOperations
from kingdom.client.inbox_operations import InboxOperations
from kingdom.client.models import Page
from kingdom.client.workflow_operations import WorkflowOperations

T = TypeVar("T")


class Client(CourtOperations, InboxOperations, WorkflowOperations):
    """A connection to one server. Errors are described at :class:`kingdom.client.connection.Connection`."""

    def every(self, operation: Callable[..., Page[T]], *args: Any, **query: Any) -> Iterator[T]:
        """Iterate over all pages of a list operation: ``client.every(client.list_tasks, general="gen-pr")``."""
        cursor = None
        while True:
            page = operation(*args, cursor=cursor, **query)
            yield from page["items"]
            cursor = page["nextCursor"]
            if cursor is None:
                return

    def follow(self, *, workflow_id: str | None = None, last: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield live events of one workflow, or all. ``last`` is the sequence number of the last event received.

        Each item has ``sequenceNumber`` and ``event``. Raises :class:`~kingdom.client.connection.ServerAway` when the
        connection ends: call again with the last number. Raises :class:`~kingdom.client.connection.TooOld` when the
        events after that number are no longer stored.
        """
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": str(last)})
        data: list[str] = []
        for line in self.lines("/api/stream", query={"workflowId": workflow_id}, headers=headers):
            if line.startswith("data:"):
                data.append(line[5:].lstrip())
            elif not line and data:
                message = json.loads("\n".join(data))
                data = []
                if message["type"] == "reset":
                    raise TooOld(message["sequenceNumber"], message["oldestSequenceNumber"])
                if message["type"] == "event":
                    yield message
