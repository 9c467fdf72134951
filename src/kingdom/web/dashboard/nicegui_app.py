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
from kingdom.web.security import nonce

if TYPE_CHECKING:
    from fastapi import FastAPI
    from jinja2 import Environment
    from starlette.types import Message, Receive, Scope, Send

    from kingdom.web.context import WebContext


# The scripts of a page and its Content-Security-Policy.
#
# The policy lets only scripts run that carry the number of this answer. NiceGUI's template knows nothing of it, so the
# number is put into the source of the template: into the script tags that stand there, never into what a page puts in.


_SCRIPT_TAG: Final = "<script"


class _NonceLoader(BaseLoader):
    """Another loader's templates, with the number in their script tags."""

    def __init__(self, inner: BaseLoader) -> None:
        self._inner = inner

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Callable[[], bool] | None]:
        source, path, fresh = self._inner.get_source(environment, template)
        return source.replace(_SCRIPT_TAG, f'{_SCRIPT_TAG} nonce="{{{{ kingdom_nonce() }}}}"'), path, fresh


def add_nonces() -> None:
    """Have every page of this process carry the number of its answer. Doing it twice does it once."""
    environment = templates.env
    if environment.loader is not None and not isinstance(environment.loader, _NonceLoader):
        environment.loader = _NonceLoader(environment.loader)
        environment.globals["kingdom_nonce"] = nonce
        if environment.cache is not None:
            environment.cache.clear()


# The pages inside an application.


_PAGE_MODULES: Final = ("court", "task_list", "task_page", "bus", "workflows")
_API_PATHS: Final = ("/api", "/ws", "/hooks", "/healthz", "/readyz", "/metrics", "/login")
_RECONNECT_SECONDS: Final = 10.0  # seconds a page is kept for a browser that lost its connection
_NICEGUI_FILES: Final = f"/_nicegui/{nicegui_version}/"
_DYNAMIC_FILES: Final = f"{_NICEGUI_FILES}dynamic_resources/"


def mount(app: FastAPI, context: WebContext) -> None:
    """Put the pages into an application. Anything that is not the API is theirs, also what does not exist."""
    for name in _PAGE_MODULES:
        importlib.import_module(f"kingdom.web.dashboard.{name}")
    app.include_router(shell.preferences_router)
    app.include_router(theme.assets_router)
    # NiceGUI has one application in a process; where a second one of ours is made (tests), it is put in there anew
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
    # A choice takes the focus back when its list has faded out, and with the focus what is typed elsewhere by then.
    ui.select.default_props("transition-duration=0")
    # NiceGUI's own middlewares log a traceback whenever a browser goes away in the middle of an answer; what they do
    # (prefixes of a proxy, how long files may be kept) we do not need or do below
    pages.user_middleware.clear()
    pages.add_middleware(GZipMiddleware, compresslevel=1)  # the most part of our visitors is on this machine
    add_nonces()
    mounted = app.router.routes.pop()
    if not isinstance(mounted, Mount):
        raise TypeError(f"NiceGUI put {mounted!r} into the application, where a Mount was expected")
    app.router.routes.append(_DashboardMount(mounted, context))


class _DashboardMount(Mount):
    """Gives each request its visit. Leaves the paths of the API alone, so that these answer 404 and 405 themselves."""

    def __init__(self, mounted: Mount, context: WebContext) -> None:
        super().__init__(mounted.path, mounted.app, name="dashboard")
        self._context = context
        self._shared = SharedReads()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request is for a page."""
        path = scope.get("path", "")
        if any(path == one or path.startswith(f"{one}/") for one in _API_PATHS):
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it."""
        connection = HTTPConnection(scope)
        path = scope["path"]
        locale, theme = preferred_settings(
            connection.cookies, connection.headers.get("accept-language", ""), self._context.settings.locale
        )
        query = f"?{connection.url.query}" if connection.url.query else ""
        current_visit.set(Visit(self._context, self._shared, locale, theme, path + query))
        kept = path.startswith(_NICEGUI_FILES) and not path.startswith(_DYNAMIC_FILES)
        await super().handle(scope, receive, _cached_forever(send) if kept else send)


def _cached_forever(send: Send) -> Send:
    """Files with a version in their address never change."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            MutableHeaders(scope=message)["Cache-Control"] = "public, max-age=31536000, immutable"
        await send(message)

    return sending
