"""The client: one method per operation, iteration over pages, and live events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from kingdom.client.court_operations import CourtOperations
from kingdom.client.event_stream import EventStream
from kingdom.client.inbox_operations import InboxOperations
from kingdom.client.models import Page
from kingdom.client.server_operations import ServerOperations
from kingdom.client.task_operations import TaskOperations
from kingdom.client.template_operations import TemplateOperations
from kingdom.client.workflow_operations import WorkflowOperations

T = TypeVar("T")


class Client(
    CourtOperations, InboxOperations, ServerOperations, TaskOperations, TemplateOperations, WorkflowOperations
):
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

    def follow(
        self,
        *,
        types: Iterable[str] = (),
        workflow_id: str | None = None,
        last: int | None = None,
        patience: float | None = 300.0,
    ) -> Iterator[dict[str, Any]]:
        """Yield live events as they happen, without a gap, also across broken connections and restarts of the server.

        ``types`` are names of events, or beginnings such as ``task.*``; none: all. ``last`` is the number of the last
        event received; None: only new events. Each item has ``sequenceNumber`` and ``event``.

        Raises :class:`~kingdom.client.connection.ServerAway` when the first connection fails, or when the server has
        not responded for ``patience`` seconds (None: waits for ever), and
        :class:`~kingdom.client.connection.TooOld` when the events after the number are no longer stored.
        """
        stream = EventStream(self, types=types, workflow_id=workflow_id, last=last)
        yield from stream.connect()
        while True:
            yield from stream.reconnect(patience)
