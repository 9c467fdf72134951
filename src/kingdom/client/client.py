"""The client: a method for each operation, lists without pages, and what happens as it happens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kingdom.client.connection import TooOld
from kingdom.client.models import Page
from kingdom.client.operations import Operations

T = TypeVar("T")


class Client(Operations):
    """One server; see :class:`kingdom.client.connection.Connection` for what becomes of errors."""

    def every(self, operation: Callable[..., Page[T]], *args: Any, **query: Any) -> Iterator[T]:
        """Everything that an operation with pages lists: ``client.every(client.list_tasks, general="gen-pr")``."""
        cursor = None
        while True:
            page = operation(*args, cursor=cursor, **query)
            yield from page["items"]
            cursor = page["nextCursor"]
            if cursor is None:
                return

    def follow(self, *, workflow_id: str | None = None, last: int | None = None) -> Iterator[dict[str, Any]]:
        """What happens, as it happens: to one workflow, or everywhere. ``last``: the number of the last one known.

        Each is a document with ``sequenceNumber`` and ``event``. Ends when the connection does
        (:class:`~kingdom.client.connection.ServerAway`): go on with the last number. Raises
        :class:`~kingdom.client.connection.TooOld` when what came behind that number is not kept any more.
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
