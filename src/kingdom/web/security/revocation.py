"""End the open streams and WebSockets of people whose token was revoked, or whose session ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kingdom.web.security.roles import Person
    from kingdom.web.security.sessions import SessionStore

_POLICY_VIOLATION: Final = 1008


_REASONS: Final = {
    "changed": "the access changed",
    "ended": "the session ended",
    "revoked": "the token was revoked",
}


class OpenConnections:
    """Connections that stay open. Those with the home's own token are not among them, but those of its browsers are."""

    def __init__(self, sessions: SessionStore) -> None:
        self._sessions = sessions
        self._open: dict[asyncio.Future[str], Person] = {}
        self._watched: dict[object, tuple[Person, Callable[[], None]]] = {}

    def watch(self, person: Person, ended: Callable[[], None]) -> Callable[[], None]:
        """Call ``ended`` when the access of a person ends or changes. Returns the function that stops watching."""
        key = object()
        self._watched[key] = (person, ended)
        return lambda: self._watched.pop(key, None) and None

    def end_revoked(self) -> None:
        """End the connections of people who have their token or session no more, or with another role."""
        held: dict[tuple[Person, str], bool] = {}

        def holds(person: Person) -> bool:
            who = (person, person.session)
            if who not in held:
                held[who] = self._sessions.holds(person)
            return held[who]

        for key, (person, ended) in [*self._watched.items()]:
            if not holds(person):
                self._watched.pop(key, None)
                ended()
        for revoked, person in self._open.items():
            if not holds(person) and not revoked.done():
                revoked.set_result(_REASONS[self._sessions.end_of_access(person)])

    async def run(self, person: Person, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application for a connection. When the access is revoked, the client counts as disconnected."""
        revoked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[revoked] = person
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
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": revoked.result()})
            return {"type": f"{kind}.disconnect", "code": _POLICY_VIOLATION}

        async def sending(message: Message) -> None:
            if not revoked.done():
                await send(message)

        try:
            await app(scope, received, sending)
        finally:
            del self._open[revoked]
