"""Live events over a WebSocket: ``/ws/events``. :mod:`kingdom.web.live.protocol` has the messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from kingdom.web.context import Context
from kingdom.web.errors import as_api_error
from kingdom.web.live import protocol
from kingdom.web.live.hub import MAX_LIVE_CLIENTS, LiveConnection
from kingdom.web.live.subscription import LiveSubscription, OutgoingMessage, SubscriptionReset, subscribe

if TYPE_CHECKING:
    from starlette.types import Message

    from kingdom.web.live.hub import Hub

log = logging.getLogger("kingdom.web.live")
router = APIRouter()

_MAX_BATCH_CHARS: Final = 256 * 1024
_SENDS_PER_TURN: Final = 4  # messages to one client before others are served
_MAX_WAITING_REPLIES: Final = 200


@router.websocket("/ws/events")
async def websocket_events(websocket: WebSocket, context: Context) -> None:
    """Serve live events over a WebSocket."""
    await websocket.accept()
    hub = context.live
    if len(hub.clients) >= MAX_LIVE_CLIENTS:
        await websocket.close(1013, f"{MAX_LIVE_CLIENTS} live connections are open")
        return
    await WebSocketConnection(websocket, hub, context.settings.idle_seconds).run()


class WebSocketConnection(LiveConnection):
    """A client connected over a WebSocket, with one subscription at a time."""

    def __init__(self, websocket: WebSocket, hub: Hub, idle: float) -> None:
        super().__init__(hub, idle)
        self._websocket = websocket
        self._received_at = self._clock()
        self._replies: deque[str] = deque()
        self._subscription: LiveSubscription | None = None
        self._batch = False
        self._in_a_row = 0  # messages sent without a pause

    async def run(self) -> None:
        """Run until the client or the server ends the connection."""
        try:
            end = await self.attend(self._receive(), self._send_loop())
        finally:
            self._change_to(None)
        if end is not None:
            with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):
                await self._websocket.close(*end)

    def check(self, now: float) -> None:
        """Disconnect a client that sends nothing or does not read."""
        if now - self._received_at > self.idle:
            self.end(4408, f"nothing received for {self.idle:g} s: send ping")
        else:
            super().check(now)

    def send_keepalive(self) -> None:
        """Schedule a ping."""
        self._reply(protocol.ping_message(None if self._subscription is None else self._subscription.number))

    async def _receive(self) -> None:
        """Receive messages of the client."""
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            self._received_at = self._clock()
            text = _message_text(message)
            if text is None:
                self.end(1009, f"a message may have at most {protocol.MAX_CLIENT_MESSAGE_BYTES} bytes")
                return
            try:
                await self._handle(protocol.parse_client_message(text))
            except Exception as error:  # sent to the client, as in every route
                problem = as_api_error(error)
                if problem.status >= 500:
                    log.exception("cannot serve a live connection")
                self._reply(protocol.error_message(problem))

    async def _handle(self, message: protocol.Subscribe | protocol.Unsubscribe | protocol.Ping | protocol.Pong) -> None:
        if isinstance(message, protocol.Subscribe):
            made, reset = await subscribe(
                self.hub, message.workflow_id, message.last_sequence_number, message.types, self.woken.set
            )
            self._change_to(made)
            self._batch = message.batch
            self._reply(protocol.subscribed_message(made))
            if reset is not None:
                self._reply(protocol.reset_message(reset))
        elif isinstance(message, protocol.Unsubscribe):
            self._change_to(None)
            self._reply('{"type":"unsubscribed"}')
        elif isinstance(message, protocol.Ping):
            self._reply('{"type":"pong"}')

    def _change_to(self, subscription: LiveSubscription | None) -> None:
        if self._subscription is not None:
            self._subscription.close()
        self._subscription = subscription

    def _reply(self, text: str) -> None:
        if len(self._replies) >= _MAX_WAITING_REPLIES:
            self.end(4429, "reading too slowly: too many replies wait")
        self._replies.append(text)
        self.woken.set()

    async def _send_loop(self) -> None:
        """Send replies first, then events, as fast as the client reads."""
        while True:
            self.woken.clear()
            while self._replies:
                await self._send(self._replies.popleft())
            subscription = self._subscription
            found = None if subscription is None else await subscription.take()
            if subscription is not self._subscription:
                continue
            if isinstance(found, SubscriptionReset):
                await self._send(protocol.reset_message(found))
            elif found is None:
                self._in_a_row = 0
                await self.woken.wait()
            else:
                await self._send_all(found)

    async def _send_all(self, items: Sequence[OutgoingMessage]) -> None:
        if not self._batch or len(items) < 2:
            for item in items:
                await self._send(item.message)
            return
        part: list[str] = []
        size = 0
        for item in items:
            if part and size + len(item.message) > _MAX_BATCH_CHARS:
                await self._send(_batch_message(part))
                part, size = [], 0
            part.append(item.message)
            size += len(item.message)
        await self._send(_batch_message(part))

    async def _send(self, text: str) -> None:
        await self.sending(self._websocket.send({"type": "websocket.send", "text": text}))
        self._in_a_row += 1
        if self._in_a_row % _SENDS_PER_TURN == 0:
            # While the kernel's buffer has room, sending does not yield to the event loop: other tasks would wait, and
            # a disconnect would go unnoticed.
            await asyncio.sleep(0)


def _batch_message(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f'{{"type":"events","items":[{",".join(messages)}]}}'


def _message_text(message: Message) -> str | None:
    """Return the text of a message; None if it is too long."""
    text = message.get("text")
    if text is None:
        raw: bytes = message.get("bytes") or b""
        text = raw.decode(errors="replace")
    return None if len(text) > protocol.MAX_CLIENT_MESSAGE_BYTES else text
