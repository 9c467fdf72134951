"""What live connections have in common: when somebody reads too slowly, and when it is time for a sign of life."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from starlette.websockets import WebSocketDisconnect

if TYPE_CHECKING:
    from kingdom.web.live.hub import Hub

BEHIND_EVENTS: Final = 2_000
BEHIND_BYTES: Final = 4 * 1024 * 1024
BEHIND_SECONDS: Final = 20.0


class Connection:
    """A client as the hub sees it.

    It reads too slowly when one message to it is on its way so long that ``BEHIND_EVENTS`` events or ``BEHIND_BYTES``
    happened meanwhile, or ``BEHIND_SECONDS`` went by. Somebody who reads an old part of the feed is behind as well, but
    gets on.
    """

    def __init__(self, hub: Hub, idle: float) -> None:
        self.hub = hub
        self._clock = asyncio.get_running_loop().time
        self.idle = idle
        self.sent_at = self._clock()
        self._sending: tuple[float, int, int] | None = None
        self.woken = asyncio.Event()
        self._over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def attend(self, *work: Coroutine[Any, Any, None]) -> tuple[int, str] | None:
        """Do the work of a connection until some of it ends: the client went, or :meth:`end` was called.

        Returns what ``end`` was given. Raises what broke, unless it was the connection.
        """
        self.hub.clients.add(self)
        tasks = [asyncio.ensure_future(part) for part in work]
        try:
            await asyncio.wait({*tasks, self._over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.hub.clients.discard(self)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, WebSocketDisconnect | OSError):
                raise end
        if not self._over.done():
            return None
        code, reason = self._over.result()
        return code, reason

    async def sending(self, work: Awaitable[None]) -> None:
        """Send something; the watch over slow clients looks on."""
        self._sending = (self._clock(), self.hub.head, self.hub.bytes_told)
        await work
        self._sending = None
        self.sent_at = self._clock()

    def look(self, now: float) -> None:
        """Give up on a client that does not read; send a sign of life to one that heard nothing for a while."""
        if self._sending is not None:
            since, head, told = self._sending
            events, size = self.hub.head - head, self.hub.bytes_told - told
            if events > BEHIND_EVENTS or size > BEHIND_BYTES or now - since > BEHIND_SECONDS:
                self.end(4429, f"you do not read: {events} events behind after {now - since:.0f} s")
        elif now - self.sent_at > self.idle / 3:
            self.sent_at = now
            self.say_alive()

    def say_alive(self) -> None:
        """Have a sign of life sent."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """End the connection: the server stops."""
        self.end(1012, "the server stops")

    def end(self, code: int, reason: str) -> None:
        """Have the connection closed."""
        if not self._over.done():
            self._over.set_result((code, reason))
