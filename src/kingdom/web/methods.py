"""ASGI middleware for the methods of requests: HEAD wherever GET is answered, and 405 with all methods of a path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from kingdom.web.envelope import ApiError
from kingdom.web.middleware import IDEMPOTENCY_HEADER

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NOT_ALLOWED = 405


def methods_of(routes: Iterable[BaseRoute], path: str) -> list[str]:
    """Return the methods that the routes of a path answer, by name; none where there is no route."""
    found = {
        method
        for route in routes
        if isinstance(route, Route) and route.path_regex.match(path)
        for method in route.methods or ()
    }
    return sorted(found | {"HEAD"} if "GET" in found else found)


class MethodMiddleware:
    """Answers HEAD as GET without a body. Refuses other methods before anything else looks at the request.

    ``routes`` is asked when it is needed: routes are added after the middleware.
    """

    def __init__(self, app: ASGIApp, routes: Callable[[], Iterable[BaseRoute]]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "HEAD":
            head = _HeadExchange(receive, send)
            await self._app({**scope, "method": "GET"}, head.receive, self._allowing(scope, head.send))
        elif self._is_refused(scope):
            methods = methods_of(self._routes(), scope["path"])
            refusal = ApiError(_NOT_ALLOWED, "SYS_METHOD_NOT_ALLOWED", "Method Not Allowed")
            answer = JSONResponse(refusal.body(), _NOT_ALLOWED, {"Allow": ", ".join(methods)})
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, self._allowing(scope, send))

    def _is_refused(self, scope: Scope) -> bool:
        """Return whether a request with an idempotency key has a method that its path does not answer."""
        if Headers(scope=scope).get(IDEMPOTENCY_HEADER) is None:
            return False
        methods = methods_of(self._routes(), scope["path"])
        return bool(methods) and scope["method"] not in methods

    def _allowing(self, scope: Scope, send: Send) -> Send:
        """Name all methods of a path in a 405. A route alone knows only its own."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _NOT_ALLOWED:
                MutableHeaders(scope=message)["Allow"] = ", ".join(methods_of(self._routes(), scope["path"]))
            await send(message)

        return sending


class _HeadExchange:
    """Sends the beginning of a response only, and then says that the client has gone: a stream would never end."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._answered = False

    async def receive(self) -> Message:
        return {"type": "http.disconnect"} if self._answered else await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b""})
            self._answered = True
