"""The web server as a role of the court. Importing this module is cheap: frameworks are imported on start."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.garbage import exclude_current
from kingdom.court.errors import CourtError
from kingdom.web.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.loop import Services
    from kingdom.web.server import RunningServer
    from kingdom.web.settings import WebSettings

_TICK_SECONDS: Final = 10.0
_LISTEN_RETRY_SECONDS: Final = 5.0  # if the port is in use
log = logging.getLogger("kingdom.web")


class WebRole:
    """Keeps the web server running. If its port is in use, retries and reports it in ``kingdom status``."""

    name = "web"
    interval = _TICK_SECONDS

    def __init__(self, services: Services, settings: WebSettings) -> None:
        self._services = services
        self._settings = settings
        self._running: RunningServer | None = None
        self._held = contextlib.AsyncExitStack()
        self._trouble = ""

    async def start(self) -> None:
        """Nothing to reconcile: opening the server recovers what a former process left."""

    async def tick(self) -> float | None:
        """Start the server if it is not running."""
        if self._running is not None and self._running.broken is not None:
            log.error("the web server failed; restarting it", exc_info=self._running.broken)
            await self.stop()
        if self._running is None:
            try:
                await self._open()
            except CourtError as error:
                await self.stop()
                if self._trouble != str(error):
                    log.warning("%s", error)
                self._trouble = str(error)
                return _LISTEN_RETRY_SECONDS
            except BaseException:
                await self.stop()  # release the port: the next attempt needs it
                raise
        return None

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """No event of the court wakes this role."""
        return lambda: None

    def report(self) -> Mapping[str, Any]:
        """Report the URL, or why the server is not running."""
        return {"url": None if self._running is None else self._running.url, "trouble": self._trouble}

    async def stop(self) -> None:
        """Close all connections and stop the server."""
        held, self._held, self._running = self._held, contextlib.AsyncExitStack(), None
        await held.aclose()

    async def _open(self) -> None:
        from kingdom.web.server import listen

        self._settings.check()
        root = self._services.home.root
        listener = listen(
            root, self._settings
        )  # first, because it is cheap: nothing else is opened if the port is in use
        self._held.callback(listener.close)

        from kingdom.web.app import create_app
        from kingdom.web.bootstrap import open_context
        from kingdom.web.security import obtain_token
        from kingdom.web.server import serve

        context = await self._held.enter_async_context(
            open_context(root, self._settings, obtain_token(root), services=self._services, clock=self._services.clock)
        )
        self._running = await self._held.enter_async_context(serve(create_app(context), context, listener))
        self._trouble = ""
        exclude_current()
        log.info("the dashboard is at %s (kingdom web --link logs a browser in)", self._running.url)


def make(services: Services) -> WebRole:
    """Create the role for a court. This is the entry point that the court loads."""
    return WebRole(services, settings_of(services.home.root))
