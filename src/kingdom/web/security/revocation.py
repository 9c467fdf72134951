"""End the open streams and WebSockets of people whose token was revoked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kingdom.web.security.roles import Person
    from kingdom.web.security.tokens import TokenStore

_POLICY_VIOLATION: Final = 1008


class OpenConnections:
    """Connections that stay open, by person. The connections of the home's own token are not among them."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens
        self._open: dict[Person, set[asyncio.Future[None]]] = {}

    def end_revoked(self) -> None:
        """End the connections of people who have their token no more, or with another role."""
        for person in [person for person in self._open if not self._tokens.holds(person)]:
            for revoked in self._open[person]:
                if not revoked.done():
                    revoked.set_result(None)

    async def run(self, person: Person, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application for a connection. When the token is revoked, the client counts as disconnected."""
        revoked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open.setdefault(person, set()).add(revoked)
        kind = "websocket" if scope["type"] == "websocket" else "http"

        async def received() -> Message:
            waiting: asyncio.Future[Any] = asyncio.ensure_future(receive())
            either: set[asyncio.Future[Any]] = {waiting, revoked}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not waiting.done():
                    waiting.cancel()
            if not revoked.done():
                message: Message = waiting.result()
                return message
            if kind == "websocket":
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "the token was revoked"})
            return {"type": f"{kind}.disconnect", "code": _POLICY_VIOLATION}

        async def sending(message: Message) -> None:
            if not revoked.done():
                await send(message)

        try:
            await app(scope, received, sending)
        finally:
            self._open[person].discard(revoked)
            if not self._open[person]:
                del self._open[person]
