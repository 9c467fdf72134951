"""The application: routes, live events, dashboard, and what stands guard before them."""

from __future__ import annotations

from fastapi import FastAPI

from kingdom import __version__
from kingdom.web import api, errors, live, rules, security
from kingdom.web.context import WebContext
from kingdom.web.envelope import Failed


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
    errors.install(app)
    for router in (*api.ROUTERS, *live.ROUTERS):
        app.include_router(router)
    rules.install(app, context)
    if pages:
        from kingdom.web import dashboard

        dashboard.mount(app, context)
    security.guard(app, context)
    return app
