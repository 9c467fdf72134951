"""ASGI middleware that checks the role of each request under ``/api``, and records what people change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute

from kingdom.web.acting import Act, acting, check_may, record_act
from kingdom.web.envelope import ApiError
from kingdom.web.middleware import CHANGING_METHODS, REPLAYED_HEADER
from kingdom.web.security.guard import OPEN_PREFIX, PERSON_SCOPE_KEY
from kingdom.web.security.roles import OWNER, Person, role_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kingdom.web.context import WebContext


def operation_of(route: APIRoute) -> str:
    """Return the operation id of a route."""
    return route.operation_id or route.unique_id


def check_routes(routes: Iterable[BaseRoute]) -> None:
    """Raise ``KeyError`` for a route that changes something and has no role. Webhooks have secrets of their own."""
    for route in routes:
        if isinstance(route, APIRoute) and not route.path.startswith(OPEN_PREFIX):
            for method in route.methods or ():
                role_of(operation_of(route), method)


class RoleMiddleware:
    """Refuses operations that the role of the person does not allow. Runs before the body of a request is read."""

    def __init__(self, app: ASGIApp, context: WebContext, routes: Callable[[], Iterable[BaseRoute]]) -> None:
        self._app = app
        self._context = context
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/") or scope["method"] not in CHANGING_METHODS:
            await self._app(scope, receive, send)  # every role includes look
            return
        found = self._find(scope)
        if found is None:
            await self._app(scope, receive, send)
            return
        operation, parameters = found
        person: Person = scope.get(PERSON_SCOPE_KEY) or OWNER
        try:
            check_may(self._context, person, operation)
        except ApiError as error:
            await JSONResponse(error.body(), error.status)(scope, receive, send)
            return
        workflow_id = parameters.get("workflowId", "")
        act = Act(person, subject="/".join(parameters.values()), workflow_id=workflow_id)
        done = False

        async def watched(message: Message) -> None:
            nonlocal done
            if message["type"] == "http.response.start":
                replayed = REPLAYED_HEADER in Headers(raw=message["headers"])
                done = message["status"] < 400 and not replayed
            await send(message)

        with acting(act):
            await self._app(scope, receive, watched)
            if done:
                await record_act(self._context, act, operation)

    def _find(self, scope: Scope) -> tuple[str, dict[str, str]] | None:
        for route in self._routes():
            if isinstance(route, APIRoute) and scope["method"] in (route.methods or ()):
                match = route.path_regex.match(scope["path"])
                if match is not None:
                    return operation_of(route), match.groupdict()
        return None
