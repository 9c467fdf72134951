"""Live events as server-sent events: ``GET /api/stream``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response

from kingdom.web.context import Context
from kingdom.web.envelope import ApiError, Ok, ok
from kingdom.web.live import protocol
from kingdom.web.live.hub import MAX_LIVE_CLIENTS, LiveConnection
from kingdom.web.live.subscription import LiveSubscription, SubscriptionReset, subscribe

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from kingdom.web.live.hub import Hub

router = APIRouter(prefix="/api/stream", tags=["live"])

_RETRY_MILLISECONDS: Final = 1000  # before a browser reconnects
_EXAMPLE: Final = (
    'id: 42\ndata: {"type":"event","sequenceNumber":42,"workflowId":null,"event":{"source":"journal",'
    '"type":"task.started","occurredAt":"2026-02-07T10:00:00Z","actor":"gen-pr","data":{"task_id":"task-20260207-001"}}}'
    "\n\n"
)
_EVENT_SCHEMA: Final = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$", "description": "Its number."},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "A message of the protocol."},
    },
    "required": ["id", "data"],
}
_STREAM_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class SseResponse(Response):
    """A streaming response of server-sent events."""

    media_type = "text/event-stream"


@router.get(
    "",
    summary="Stream live events",
    description=(
        "Events of the court and of workflows, as server-sent events. The `id` of each event is its number, counted "
        "without gaps. A browser sends the last number when it reconnects and misses nothing. `data` is a message of "
        "type `event`, `subscribed` (the first one) or `reset` (the number is too old: reload the state). The messages "
        "are those of the WebSocket `/ws/events`; `GET /api/stream/protocol` describes them."
    ),
    operation_id="streamEvents",
    response_class=SseResponse,
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT_SCHEMA, "example": _EXAMPLE}}}},
)
async def stream_events(
    context: Context,
    workflow_id: Annotated[
        str | None,
        Query(
            alias="workflowId",
            min_length=1,
            max_length=200,
            description="Only events of this workflow, with its own numbers.",
        ),
    ] = None,
    types: Annotated[
        str | None,
        Query(max_length=4000, description="Event types, separated by commas; `task.*` matches a prefix."),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Query(alias="lastEventId", max_length=20, description="The last number received; 0: all stored events."),
    ] = None,
    last_event_id_header: Annotated[
        str | None,
        Header(alias="Last-Event-ID", max_length=20, description="The same, as browsers send it when they reconnect."),
    ] = None,
) -> SseResponse:
    """Stream live events."""
    hub = context.live
    if len(hub.clients) >= MAX_LIVE_CLIENTS:
        raise ApiError(503, "SYS_BUSY", f"{MAX_LIVE_CLIENTS} live connections are open: close some")
    number = _parse_event_id(last_event_id_header or last_event_id)
    connection = SseConnection(hub, context.settings.idle_seconds)
    wanted = [name.strip() for name in (types or "").split(",") if name.strip()]
    subscription, reset = await subscribe(hub, workflow_id, number, wanted, connection.woken.set)
    return _SseStreamResponse(connection, subscription, reset)


@router.get(
    "/protocol",
    summary="Get the live event protocol",
    description="JSON Schemas of the messages of the WebSocket `/ws/events`, and its close codes.",
    operation_id="getStreamProtocol",
)
async def describe_protocol() -> Ok[Mapping[str, Any]]:
    """Describe the messages of live connections."""
    return ok(protocol.protocol_description())


class _SseStreamResponse(SseResponse):
    """The response that runs an SSE connection."""

    def __init__(
        self, connection: SseConnection, subscription: LiveSubscription, reset: SubscriptionReset | None
    ) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._connection = connection
        self._subscription = subscription
        self._reset = reset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._connection.run(self._subscription, self._reset, receive, send)
        finally:
            self._subscription.close()


class SseConnection(LiveConnection):
    """A client connected over SSE."""

    def __init__(self, hub: Hub, idle: float) -> None:
        super().__init__(hub, idle)
        self._alive = False

    def send_keepalive(self) -> None:
        """Schedule a comment line."""
        self._alive = True
        self.woken.set()

    async def run(
        self, subscription: LiveSubscription, reset: SubscriptionReset | None, receive: Receive, send: Send
    ) -> None:
        """Run until the client or the server ends the connection."""
        end = await self.attend(_wait_for_disconnect(receive), self._send_loop(subscription, reset, send))
        if end is not None and end[0] != 4429:  # nothing more can be sent to a client that does not read
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_loop(self, subscription: LiveSubscription, reset: SubscriptionReset | None, send: Send) -> None:
        first = _sse_event(subscription.number, protocol.subscribed_message(subscription))
        await self._send(send, f"retry: {_RETRY_MILLISECONDS}\n{first}")
        found: Any = reset
        while True:
            if isinstance(found, SubscriptionReset):
                await self._send(send, _sse_event(found.number, protocol.reset_message(found)))
            elif found:
                await self._send(send, "".join(_sse_event(item.number, item.message) for item in found))
                await asyncio.sleep(0)  # sending does not yield to the event loop; let other tasks run
            self.woken.clear()
            if self._alive:  # an id without data: the browser remembers the number even if no event matched
                self._alive = False
                await self._send(send, f": still here\nid: {subscription.number}\n\n")
            found = await subscription.take()
            if found is None:
                await self.woken.wait()

    async def _send(self, send: Send, text: str) -> None:
        await self.sending(send({"type": "http.response.body", "body": text.encode(), "more_body": True}))


def _sse_event(number: int, message: str) -> str:
    return f"id: {number}\ndata: {message}\n\n"


def _parse_event_id(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal():
        raise ApiError(422, "SYS_INVALID", f"the last event id must be a number, not {text!r:.40}")
    return int(text)


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
