"""The FastAPI application: routes, live events, dashboard, middleware and the request guard."""

from __future__ import annotations

from fastapi import FastAPI

from kingdom import __version__
from kingdom.web import api, errors, live, openapi, security
from kingdom.web.context import WebContext
from kingdom.web.envelope import Failed
from kingdom.web.middleware import ETagMiddleware, IdempotencyMiddleware, ResponseStore, SizeLimitMiddleware
from kingdom.web.record import STATE_FOLDER

# What holds for all requests under ``/api``: how large they may be, that a POST is done once, tags of answers.


def add_middleware(app: FastAPI, context: WebContext) -> None:
    """Have an application keep these rules, and its OpenAPI document tell of them."""
    answers = ResponseStore(context.root / STATE_FOLDER / "idempotency.db", context.clock)
    app.add_middleware(ETagMiddleware)
    app.add_middleware(IdempotencyMiddleware, answers=answers)
    app.add_middleware(SizeLimitMiddleware)  # the last one added is the first one met
    openapi.complete_openapi(app)


# The application: routes, live events, dashboard, and what stands guard before them.


def create_app(context: WebContext, *, pages: bool = True) -> FastAPI:
    """Everything under one roof. Whoever serves it opens and closes ``context``.

    Without ``pages`` there is no dashboard, and its toolkit is not even imported.
    """
    app = FastAPI(
        title="Kingdom",
        version=__version__,
        summary="The court and its workflows over HTTP",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        responses={"4XX": {"model": Failed}, "5XX": {"model": Failed}},
    )
    app.state.context = context
    errors.add_error_handlers(app)
    for router in (*api.ROUTERS, *live.ROUTERS):
        app.include_router(router)
    add_middleware(app, context)
    if pages:
        from kingdom.web import dashboard

        dashboard.mount(app, context)
    security.add_guard(app, context)
    return app
