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

_RETRY_MILLISECONDS: Final = 1000  # milliseconds after which a browser connects again
_EXAMPLE: Final = (
    'id: 42\ndata: {"type":"event","sequenceNumber":42,"workflowId":null,"event":{"source":"journal",'
    '"type":"task.started","occurredAt":"2026-02-07T10:00:00Z","actor":"gen-pr","data":{"task_id":"task-20260207-001"}}}'
    "\n\n"
)
_STREAM_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class SseResponse(Response):
    """An answer that goes on until one of both sides ends it."""

    media_type = "text/event-stream"


@router.get(
    "",
    summary="Live events",
    description=(
        "What happens to the court and to workflows, as server-sent events. Each has a number as its `id`, which "
        "counts by one; a browser sends the last one it got when it connects again, and misses nothing. `data` is a "
        "message of the type `event`, or `subscribed` (the first one) or `reset` (the number is too old: read the "
        "state anew); the same as over the WebSocket `/ws/events`, which `GET /api/stream/protocol` describes."
    ),
    operation_id="streamEvents",
    response_class=SseResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}}}},
)
async def stream_events(
    context: Context,
    workflow_id: Annotated[
        str | None,
        Query(
            alias="workflowId", min_length=1, max_length=200, description="Of this workflow only, by its own numbers."
        ),
    ] = None,
    types: Annotated[
        str | None,
        Query(max_length=4000, description="Types of events, separated by commas; `task.*` for all that begin so."),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Query(alias="lastEventId", max_length=20, description="The last number that was received; 0: all there is."),
    ] = None,
    last_event_id_header: Annotated[
        str | None, Header(alias="Last-Event-ID", max_length=20, description="The same, as browsers send it.")
    ] = None,
) -> SseResponse:
    """Live events."""
    hub = context.live
    if len(hub.clients) >= MAX_LIVE_CLIENTS:
        raise ApiError(503, "SYS_BUSY", f"there are {MAX_LIVE_CLIENTS} live connections already: close some")
    number = _parse_event_id(last_event_id_header or last_event_id)
    made = SseConnection(hub, context.settings.idle_seconds)
    wanted = [name.strip() for name in (types or "").split(",") if name.strip()]
    subscription, reset = await subscribe(hub, workflow_id, number, wanted, made.woken.set)
    return _SseStreamResponse(made, subscription, reset)


@router.get(
    "/protocol",
    summary="The messages of live connections",
    description="JSON Schemas of what is said over the WebSocket `/ws/events`, and the codes it is closed with.",
    operation_id="getStreamProtocol",
)
async def describe_protocol() -> Ok[Mapping[str, Any]]:
    """The messages of live connections."""
    return ok(protocol.protocol_description())


class _SseStreamResponse(SseResponse):
    """Hands the connection to a stream."""

    def __init__(self, made: SseConnection, subscription: LiveSubscription, reset: SubscriptionReset | None) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._made = made
        self._subscription = subscription
        self._reset = reset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it is over."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._made.run(self._subscription, self._reset, receive, send)
        finally:
            self._subscription.close()


class SseConnection(LiveConnection):
    """One connection."""

    def __init__(self, hub: Hub, idle: float) -> None:
        super().__init__(hub, idle)
        self._alive = False

    def send_keepalive(self) -> None:
        """Have a comment sent."""
        self._alive = True
        self.woken.set()

    async def run(
        self, subscription: LiveSubscription, reset: SubscriptionReset | None, receive: Receive, send: Send
    ) -> None:
        """Until one of both sides ends it."""
        end = await self.attend(_wait_for_disconnect(receive), self._speak(subscription, reset, send))
        if end is not None and end[0] != 4429:  # to who does not read, nothing more can be sent
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _speak(self, subscription: LiveSubscription, reset: SubscriptionReset | None, send: Send) -> None:
        first = f"retry: {_RETRY_MILLISECONDS}\n{_sse_event(subscription.number, protocol.subscribed_message(subscription))}"
        await self._send(send, first)
        found: Any = reset
        while True:
            if isinstance(found, SubscriptionReset):
                await self._send(send, _sse_event(found.number, protocol.reset_message(found)))
            elif found:
                await self._send(send, "".join(_sse_event(item.number, item.message) for item in found))
                await asyncio.sleep(0)  # sending takes no turn of the loop: now others have theirs
            self.woken.clear()
            if self._alive:  # the number without data: a browser remembers it, though nothing was of interest
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
        raise ApiError(422, "SYS_INVALID", f"the last event id is a number that came as an id, not {text!r:.40}")
    return int(text)


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
