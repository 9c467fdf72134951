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
from kingdom.homes import WORKFLOWS_FOLDER, engines_of, git_settings_of, is_court, journal_of, sandbox_of
from kingdom.web.context import WebContext
from kingdom.web.live.hub import open_hub
from kingdom.web.settings import WebSettings
from kingdom.web.views.court_state import updated_views
from kingdom.workflow.commands import send_command, wait_for_command
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.engine import EngineAlreadyRunning, command_handlers, run_engine
from kingdom.workflow.errors import HeldElsewhere
from kingdom.workflow.home import WorkflowHome, open_home

if TYPE_CHECKING:
    from kingdom.court.loop import Services


log = logging.getLogger("kingdom.web")
_ENGINE_RETRY_SECONDS: Final = 2.0  # between attempts to become the engine
_ANSWER_SECONDS: Final = 30.0  # for the engine of another process to respond


class WorkflowControl:
    """Executes workflow commands: in this process if it runs the engine, else through the store's bus.

    One engine runs per store. The server becomes the engine whenever no other process is, so that workflows started
    in the dashboard make progress. While another process (a command line) runs the engine, commands go to it.
    """

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._handlers = command_handlers(parts)
        self.is_engine = False
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def engine_running(self) -> AsyncIterator[None]:
        """Run the engine inside the block whenever no other process does."""
        keeper = asyncio.create_task(self._keep(), name="web-workflow-engine")
        try:
            yield
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper

    async def execute(self, kind: str, workflow_id: str, **arguments: Any) -> None:
        """Execute a command of :func:`kingdom.workflow.engine.command_handlers` and wait for it.

        Raises the errors of the use case. If another process runs the engine, raises
        :class:`kingdom.workflow.commands.CommandRefused` or :class:`~kingdom.workflow.commands.CommandPending`.
        """
        if self.is_engine:
            with contextlib.suppress(HeldElsewhere):
                await self._handlers[kind](workflow_id, **arguments)
                return
        bus = self._parts.store.bus
        await wait_for_command(bus, await send_command(bus, kind, workflow_id, **arguments), _ANSWER_SECONDS)

    def start(self, kind: str, workflow_id: str, **arguments: Any) -> asyncio.Task[None]:
        """Start a command that may take minutes without waiting for it. Errors are also logged."""
        task = asyncio.create_task(self.execute(kind, workflow_id, **arguments), name=f"{kind} {workflow_id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel running commands. The next engine finds them in the store and continues them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
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
            except Exception:  # restart an engine that fails: its state is in the store
                log.exception("the workflow engine failed; restarting it")
            finally:
                self.is_engine = False
            await asyncio.sleep(_ENGINE_RETRY_SECONDS)


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

    ``store`` is the URL of a workflow store in another place. Without ``engine``, this process does not run workflows;
    commands go to the process that does. ``services`` are those of a court that is already open; they stay open.
    """
    place = WorkflowHome(root / WORKFLOWS_FOLDER, store)
    async with contextlib.AsyncExitStack() as stack:
        if services is None and is_court(root):
            services = await stack.enter_async_context(open_services(Home(root), clock))
        opened = open_home(
            place,
            engines_of(place),
            sandbox=sandbox_of(place),
            git=git_settings_of(place),
            journal=journal_of(place),
        )
        parts = await stack.enter_async_context(opened)
        live = await stack.enter_async_context(open_hub(root, parts.store, services))
        control = WorkflowControl(parts)
        stack.push_async_callback(control.close)
        if engine:
            await stack.enter_async_context(control.engine_running())
        context = WebContext(root, settings, token, place, parts, control, live, services, clock)
        await stack.enter_async_context(updated_views(context))
        yield context
