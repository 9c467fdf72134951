"""The pages inside an application."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from nicegui import __version__ as nicegui_version
from nicegui import app as pages
from nicegui import ui
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.routing import Match, Mount

from kingdom.web.dashboard import preferences, scripts, styles
from kingdom.web.dashboard.nowhere import nowhere
from kingdom.web.dashboard.sharing import Shared
from kingdom.web.dashboard.visit import Visit, current, preferred

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Message, Receive, Scope, Send

    from kingdom.web.context import WebContext

_MODULES: Final = ("court", "tasks", "bus", "workflows")
_NOT_OURS: Final = ("/api", "/ws", "/hooks", "/healthz", "/readyz", "/metrics", "/login")
_RECONNECT: Final = 10.0  # seconds a page is kept for a browser that lost its connection
_FILES: Final = f"/_nicegui/{nicegui_version}/"
_MADE_EACH_TIME: Final = f"{_FILES}dynamic_resources/"


def mount(app: FastAPI, context: WebContext) -> None:
    """Put the pages into an application. Anything that is not the API is theirs, also what does not exist."""
    for name in _MODULES:
        importlib.import_module(f"kingdom.web.dashboard.{name}")
    app.include_router(preferences.router)
    app.include_router(styles.router)
    # NiceGUI has one application in a process; where a second one of ours is made (tests), it is put in there anew
    pages.middleware_stack = None
    ui.run_with(
        app,
        root=nowhere,
        title="Kingdom",
        favicon=styles.MARK,
        dark=None,
        binding_refresh_interval=None,
        reconnect_timeout=_RECONNECT,
        message_history_length=100,
        gzip_middleware_factory=None,
        tailwind=False,
        show_welcome_message=False,
    )
    # A choice takes the focus back when its list has faded out, and with the focus what is typed elsewhere by then.
    ui.select.default_props("transition-duration=0")
    # NiceGUI's own middlewares log a traceback whenever a browser goes away in the middle of an answer; what they do
    # (prefixes of a proxy, how long files may be kept) we do not need or do below
    pages.user_middleware.clear()
    pages.add_middleware(GZipMiddleware, compresslevel=1)  # the most part of our visitors is on this machine
    scripts.carry_nonce()
    mounted = app.router.routes.pop()
    if not isinstance(mounted, Mount):
        raise TypeError(f"NiceGUI put {mounted!r} into the application, where a Mount was expected")
    app.router.routes.append(_Pages(mounted, context))


class _Pages(Mount):
    """Gives each request its visit. Leaves the paths of the API alone, so that these answer 404 and 405 themselves."""

    def __init__(self, mounted: Mount, context: WebContext) -> None:
        super().__init__(mounted.path, mounted.app, name="dashboard")
        self._context = context
        self._shared = Shared()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request is for a page."""
        path = scope.get("path", "")
        if any(path == one or path.startswith(f"{one}/") for one in _NOT_OURS):
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it."""
        connection = HTTPConnection(scope)
        path = scope["path"]
        locale, theme = preferred(
            connection.cookies, connection.headers.get("accept-language", ""), self._context.settings.locale
        )
        query = f"?{connection.url.query}" if connection.url.query else ""
        current.set(Visit(self._context, self._shared, locale, theme, path + query))
        kept = path.startswith(_FILES) and not path.startswith(_MADE_EACH_TIME)
        await super().handle(scope, receive, _for_ever(send) if kept else send)


def _for_ever(send: Send) -> Send:
    """Files with a version in their address never change."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            MutableHeaders(scope=message)["Cache-Control"] = "public, max-age=31536000, immutable"
        await send(message)

    return sending
