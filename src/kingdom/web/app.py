"""The FastAPI application: routes, live events, dashboard, middleware and the request guard."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from kingdom import __version__
from kingdom.web import api, errors, live, openapi, security
from kingdom.web.access import RoleMiddleware, check_routes
from kingdom.web.context import WebContext
from kingdom.web.envelope import Failed
from kingdom.web.methods import MethodMiddleware
from kingdom.web.middleware import ETagMiddleware, IdempotencyMiddleware, ResponseStore, SizeLimitMiddleware
from kingdom.web.record import STATE_FOLDER


def add_middleware(app: FastAPI, context: WebContext) -> None:
    """Add the middleware of ``/api`` and complete the OpenAPI document."""
    store = ResponseStore(context.root / STATE_FOLDER / "idempotency.db", context.clock)
    app.add_middleware(ETagMiddleware)
    app.add_middleware(IdempotencyMiddleware, store=store)
    app.add_middleware(SizeLimitMiddleware)
    app.add_middleware(RoleMiddleware, context=context, routes=lambda: _routes(app))
    app.add_middleware(MethodMiddleware, routes=lambda: _routes(app))  # added last, runs first
    openapi.complete_openapi(app)


def _routes(app: FastAPI) -> list[BaseRoute]:
    """Return all routes. Those of routers are not among the routes of the application."""
    return [*app.routes, *(route for router in (*api.ROUTERS, *live.ROUTERS) for route in router.routes)]


@cache
def _api_router() -> APIRouter:
    """Return the routes of the API, which all applications of a process share: to prepare them takes 0.3 s."""
    whole = APIRouter(responses={"4XX": {"model": Failed}, "5XX": {"model": Failed}})
    for router in (*api.ROUTERS, *live.ROUTERS):
        whole.include_router(router)
    return whole


def create_app(context: WebContext, *, pages: bool = True) -> FastAPI:
    """Create the application. The caller opens and closes ``context``.

    Without ``pages`` there is no dashboard, and NiceGUI is not imported.
    """
    app = FastAPI(
        title="Kingdom",
        version=__version__,
        summary="The court and its workflows over HTTP",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page would load scripts from another host
        redoc_url=None,
    )
    app.state.context = context
    errors.add_error_handlers(app)
    app.router.routes.extend(_api_router().routes)
    check_routes(_routes(app))
    add_middleware(app, context)
    if pages:
        from kingdom.web import dashboard

        dashboard.mount(app, context)
    security.add_guard(app, context)
    return app


async def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of the API, without a running server."""
    from kingdom.web.bootstrap import open_context
    from kingdom.web.settings import WebSettings

    with tempfile.TemporaryDirectory() as folder:
        async with open_context(Path(folder), WebSettings(), "t" * 32, engine=False) as context:
            return create_app(context, pages=False).openapi()
