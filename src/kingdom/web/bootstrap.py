"""Open everything that the web server works with, and close it again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.bootstrap import open_services
from kingdom.court.home import Home
from kingdom.homes import WORKFLOWS_FOLDER, engines_of, is_court
from kingdom.web.context import WebContext
from kingdom.web.live.hub import open_hub
from kingdom.web.settings import WebSettings
from kingdom.web.views.court_state import updated_views
from kingdom.workflow.commands import send_command, wait_for_command
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.engine import EngineAlreadyRunning, command_handlers, run_engine
from kingdom.workflow.home import WorkflowHome, open_home

if TYPE_CHECKING:
    from kingdom.court.loop import Services


# Control of workflows from the web: by the engine of this process, or by the one that another process runs.
#
# There is one engine for each store. The server takes the place whenever it is free, so that what a person starts in
# the dashboard is worked on; while a command line runs the engine, the server asks that one.


log = logging.getLogger("kingdom.web")
_ENGINE_RETRY_SECONDS: Final = 2.0  # seconds between two tries to become the engine
_ANSWER_SECONDS: Final = 30.0  # seconds for another engine to answer


class WorkflowControl:
    """Has workflows started, paused, resumed, cancelled and deleted."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._carriers = command_handlers(parts)
        self.is_engine = False
        self._begun: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def engine_running(self) -> AsyncIterator[None]:
        """Be the engine for the length of the block, whenever nobody else is."""
        keeper = asyncio.create_task(self._keep(), name="web-workflow-engine")
        try:
            yield
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper

    async def carry(self, kind: str, workflow_id: str, **arguments: Any) -> None:
        """Have a command of :func:`kingdom.workflow.engine.command_handlers` carried out, and wait for it.

        Raises what the use case raises, or :class:`kingdom.workflow.commands.CommandRefused` and
        :class:`~kingdom.workflow.commands.CommandPending` when another process runs the engine.
        """
        if self.is_engine:
            await self._carriers[kind](workflow_id, **arguments)
            return
        bus = self._parts.store.bus
        await wait_for_command(bus, await send_command(bus, kind, workflow_id, **arguments), _ANSWER_SECONDS)

    def begin(self, kind: str, workflow_id: str, **arguments: Any) -> asyncio.Task[None]:
        """The same for what may take minutes: begun, and not waited for. What goes wrong is logged as well."""
        task = asyncio.create_task(self.carry(kind, workflow_id, **arguments), name=f"{kind} {workflow_id}")
        self._begun.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Let go of what was begun; the next engine finds it, and goes on with it."""
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._begun.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", task.get_name(), error)

    async def _keep(self) -> None:
        while True:
            try:
                async with run_engine(self._parts, patience=0) as engine:
                    self.is_engine = True
                    await engine.wait()
            except EngineAlreadyRunning:
                pass
            except Exception:  # an engine that breaks is made anew; nothing is lost with it
                log.exception("the workflow engine broke; it is started again")
            finally:
                self.is_engine = False
            await asyncio.sleep(_ENGINE_RETRY_SECONDS)


# From a folder to everything the web works with, opened, and closed on the way out.


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
    place = WorkflowHome(root / WORKFLOWS_FOLDER, store)
    async with contextlib.AsyncExitStack() as stack:
        if services is None and is_court(root):
            services = await stack.enter_async_context(open_services(Home(root), clock))
        parts = await stack.enter_async_context(open_home(place, engines_of(place)))
        live = await stack.enter_async_context(open_hub(root, parts.store, services))
        control = WorkflowControl(parts)
        stack.push_async_callback(control.close)
        if engine:
            await stack.enter_async_context(control.engine_running())
        context = WebContext(root, settings, token, place, parts, control, live, services, clock)
        await stack.enter_async_context(updated_views(context))
        yield context
