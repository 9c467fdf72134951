"""Mount the dashboard's pages (NiceGUI) into the application."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jinja2 import BaseLoader
from nicegui import __version__ as nicegui_version
from nicegui import app as pages
from nicegui import ui
from nicegui.client import templates
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.routing import Match, Mount

from kingdom.web.dashboard import shell, theme
from kingdom.web.dashboard.refresh import SharedReads
from kingdom.web.dashboard.shell import not_found_page
from kingdom.web.dashboard.visit import Visit, current_visit, preferred_settings
from kingdom.web.security import PERSON_SCOPE_KEY, nonce
from kingdom.web.security.roles import OWNER

if TYPE_CHECKING:
    from fastapi import FastAPI
    from jinja2 import Environment
    from starlette.types import Message, Receive, Scope, Send

    from kingdom.web.context import WebContext


_SCRIPT_TAG: Final = "<script"


class _NonceLoader(BaseLoader):
    """Wraps a template loader and adds the nonce to ``<script>`` tags."""

    def __init__(self, inner: BaseLoader) -> None:
        self._inner = inner

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Callable[[], bool] | None]:
        source, path, fresh = self._inner.get_source(environment, template)
        return source.replace(_SCRIPT_TAG, f'{_SCRIPT_TAG} nonce="{{{{ kingdom_nonce() }}}}"'), path, fresh


def add_nonces() -> None:
    """Add the nonce of the response to the scripts of every page. Idempotent.

    The Content-Security-Policy allows only scripts that carry the nonce of their response. NiceGUI's template has no
    nonce, so it is inserted into the template source: into the script tags written there, not into page content.
    """
    environment = templates.env
    if environment.loader is not None and not isinstance(environment.loader, _NonceLoader):
        environment.loader = _NonceLoader(environment.loader)
        environment.globals["kingdom_nonce"] = nonce
        if environment.cache is not None:
            environment.cache.clear()


_PAGE_MODULES: Final = (
    "court",
    "inbox",
    "task_list",
    "task_page",
    "transcript_page",
    "generals",
    "emit",
    "events",
    "logs",
    "settings",
    "people",
    "over_time",
    "bus",
    "workflows",
)
_API_PATHS: Final = ("/api", "/ws", "/hooks", "/healthz", "/readyz", "/metrics", "/login")
_RECONNECT_SECONDS: Final = 10.0  # how long a page is kept for a disconnected browser
_NICEGUI_FILES: Final = f"/_nicegui/{nicegui_version}/"
_DYNAMIC_FILES: Final = f"{_NICEGUI_FILES}dynamic_resources/"


def mount(app: FastAPI, context: WebContext) -> None:
    """Mount the dashboard into an application. It handles every path outside of the API, including unknown ones."""
    for name in _PAGE_MODULES:
        importlib.import_module(f"kingdom.web.dashboard.{name}")
    app.include_router(shell.preferences_router)
    app.include_router(theme.assets_router)
    # NiceGUI has one application per process. If a second one of ours is created (in tests), it is mounted again.
    pages.middleware_stack = None
    ui.run_with(
        app,
        root=not_found_page,
        title="Kingdom",
        favicon=theme.LOGO_PATH,
        dark=None,
        binding_refresh_interval=None,
        reconnect_timeout=_RECONNECT_SECONDS,
        message_history_length=100,
        gzip_middleware_factory=None,
        tailwind=False,
        show_welcome_message=False,
    )
    # Quasar shows a progress bar for requests of scripts. Here these come from a socket that falls back to polling: no
    # progress of anything, and a bar without a name for screen readers.
    pages.config.quasar_config["loadingBar"]["skipHijack"] = True
    # A select takes the focus back when its list has faded out, and with it what is typed elsewhere meanwhile.
    ui.select.default_props("transition-duration=0")
    # NiceGUI's middleware logs a traceback whenever a browser disconnects during a response. What it does (proxy
    # prefixes, cache headers) is not needed or done below.
    pages.user_middleware.clear()
    pages.add_middleware(GZipMiddleware, compresslevel=1)  # most visitors are on this machine
    add_nonces()
    mounted = app.router.routes.pop()
    if not isinstance(mounted, Mount):
        raise TypeError(f"NiceGUI added {mounted!r} to the application; expected a Mount")
    app.router.routes.append(_DashboardMount(mounted, context))


class _DashboardMount(Mount):
    """Sets the visit of each request. Does not match API paths, so that the API answers 404 and 405 itself."""

    def __init__(self, mounted: Mount, context: WebContext) -> None:
        super().__init__(mounted.path, mounted.app, name="dashboard")
        self._context = context
        self._shared = SharedReads()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for a page."""
        path = scope.get("path", "")
        if any(path == one or path.startswith(f"{one}/") for one in _API_PATHS):
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set the current visit and pass the request to NiceGUI."""
        connection = HTTPConnection(scope)
        path = scope["path"]
        locale, theme = preferred_settings(
            connection.cookies, connection.headers.get("accept-language", ""), self._context.settings.locale
        )
        person = scope.get(PERSON_SCOPE_KEY) or OWNER
        query = f"?{connection.url.query}" if connection.url.query else ""
        current_visit.set(Visit(self._context, self._shared, locale, theme, path + query, person))
        kept = path.startswith(_NICEGUI_FILES) and not path.startswith(_DYNAMIC_FILES)
        await super().handle(scope, receive, _cached_forever(send) if kept else send)


def _cached_forever(send: Send) -> Send:
    """Add cache headers: files with a version in their URL never change."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            MutableHeaders(scope=message)["Cache-Control"] = "public, max-age=31536000, immutable"
        await send(message)

    return sending
