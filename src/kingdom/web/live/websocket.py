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
_SENDS_PER_TURN: Final = 4  # messages to one client, after which others have their turn
_MAX_WAITING_REPLIES: Final = 200  # answers that wait to be sent
_CLOSE_SECONDS: Final = 5.0  # seconds for a client that does not read to take the reason with it


@router.websocket("/ws/events")
async def websocket_events(websocket: WebSocket, context: Context) -> None:
    """Live events, to who subscribes."""
    await websocket.accept()
    hub = context.live
    if len(hub.clients) >= MAX_LIVE_CLIENTS:
        await websocket.close(1013, f"there are {MAX_LIVE_CLIENTS} live connections already")
        return
    await WebSocketConnection(websocket, hub, context.settings.idle_seconds).run()


class WebSocketConnection(LiveConnection):
    """One connection: one subscription at a time."""

    def __init__(self, websocket: WebSocket, hub: Hub, idle: float) -> None:
        super().__init__(hub, idle)
        self._websocket = websocket
        self._heard_at = self._clock()
        self._replies: deque[str] = deque()
        self._subscription: LiveSubscription | None = None
        self._batch = False
        self._in_a_row = 0  # messages that were sent since there was nothing to send

    async def run(self) -> None:
        """Until one of both sides ends it."""
        try:
            end = await self.attend(self._hear(), self._speak())
        finally:
            self._change_to(None)
        if end is not None:
            with contextlib.suppress(TimeoutError, WebSocketDisconnect, OSError, RuntimeError):
                await asyncio.wait_for(self._websocket.close(*end), _CLOSE_SECONDS)

    def look(self, now: float) -> None:
        """Give up on a client that says nothing, or does not read."""
        if now - self._heard_at > self.idle:
            self.end(4408, f"you said nothing for {self.idle:g} s: send ping")
        else:
            super().look(now)

    def send_keepalive(self) -> None:
        """Have a ping sent."""
        self._reply(protocol.ping_message(None if self._subscription is None else self._subscription.number))

    async def _hear(self) -> None:
        """What the client says."""
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            self._heard_at = self._clock()
            text = _message_text(message)
            if text is None:
                self.end(1009, f"a message may have {protocol.MAX_CLIENT_MESSAGE_BYTES} bytes")
                return
            try:
                await self._follow(protocol.parse_client_message(text))
            except Exception as error:  # told to the client, as every route does
                told = as_api_error(error)
                if told.status >= 500:
                    log.exception("a live connection could not be served")
                self._reply(protocol.error_message(told))

    async def _follow(self, said: protocol.Subscribe | protocol.Unsubscribe | protocol.Ping | protocol.Pong) -> None:
        if isinstance(said, protocol.Subscribe):
            made, reset = await subscribe(
                self.hub, said.workflow_id, said.last_sequence_number, said.types, self.woken.set
            )
            self._change_to(made)
            self._batch = said.batch
            self._reply(protocol.subscribed_message(made))
            if reset is not None:
                self._reply(protocol.reset_message(reset))
        elif isinstance(said, protocol.Unsubscribe):
            self._change_to(None)
            self._reply('{"type":"unsubscribed"}')
        elif isinstance(said, protocol.Ping):
            self._reply('{"type":"pong"}')

    def _change_to(self, subscription: LiveSubscription | None) -> None:
        if self._subscription is not None:
            self._subscription.close()
        self._subscription = subscription

    def _reply(self, text: str) -> None:
        if len(self._replies) >= _MAX_WAITING_REPLIES:
            self.end(4429, "you do not read the answers to your messages")
        self._replies.append(text)
        self.woken.set()

    async def _speak(self) -> None:
        """Answers first, then events, as fast as the client takes them."""
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
            # As long as the kernel has room, sending takes no turn of the loop: others would wait, and nobody would
            # notice that the client is gone.
            await asyncio.sleep(0)


def _batch_message(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f'{{"type":"events","items":[{",".join(messages)}]}}'


def _message_text(message: Message) -> str | None:
    """The text of a message; None when it is too long."""
    text = message.get("text")
    if text is None:
        raw: bytes = message.get("bytes") or b""
        text = raw.decode(errors="replace")
    return None if len(text) > protocol.MAX_CLIENT_MESSAGE_BYTES else text
