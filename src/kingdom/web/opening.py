"""From a folder to everything the web works with, opened, and closed on the way out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kingdom.court.bootstrap import open_services
from kingdom.court.home import Home
from kingdom.place import FOLDER, engines_of, is_court
from kingdom.web.context import WebContext
from kingdom.web.control import Control
from kingdom.web.live.hub import open_hub
from kingdom.web.settings import WebSettings
from kingdom.web.views.keeping import keeping
from kingdom.workflow.home import WorkflowHome, open_home

if TYPE_CHECKING:
    from kingdom.court.loop import Services


@contextlib.asynccontextmanager
async def open_context(
    root: Path,
    settings: WebSettings,
    token: str,
    *,
    store: str | None = None,
    engine: bool = True,
    services: Services | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[WebContext]:
    """Open the court and the workflows of a folder.

    ``store`` is the URL of a workflow store that lies elsewhere; without ``engine`` workflows are only looked at, and
    commands go to whoever runs them. ``services`` are those of a court that is open already, and stays so.
    """
    place = WorkflowHome(root / FOLDER, store)
    async with contextlib.AsyncExitStack() as stack:
        if services is None and is_court(root):
            services = await stack.enter_async_context(open_services(Home(root), clock))
        parts = await stack.enter_async_context(open_home(place, engines_of(place)))
        live = await stack.enter_async_context(open_hub(root, parts.store, services))
        control = Control(parts)
        stack.push_async_callback(control.close)
        if engine:
            await stack.enter_async_context(control.keeping_engine())
        context = WebContext(root, settings, token, place, parts, control, live, services, clock)
        await stack.enter_async_context(keeping(context))
        yield context
