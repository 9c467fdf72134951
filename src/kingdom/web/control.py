"""Control of workflows from the web: by the engine of this process, or by the one that another process runs.

There is one engine for each store. The server takes the place whenever it is free, so that what a person starts in
the dashboard is worked on; while a command line runs the engine, the server asks that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from kingdom.workflow.commands import answer, ask
from kingdom.workflow.lease import StoreTaken
from kingdom.workflow.parts import Parts
from kingdom.workflow.serving import carriers, serving

log = logging.getLogger("kingdom.web")
_AGAIN: Final = 2.0  # seconds between two tries to become the engine
_PATIENCE: Final = 30.0  # seconds for another engine to answer


class Control:
    """Has workflows started, paused, resumed, cancelled and deleted."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._carriers = carriers(parts)
        self.is_engine = False
        self._begun: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def keeping_engine(self) -> AsyncIterator[None]:
        """Be the engine for the length of the block, whenever nobody else is."""
        keeper = asyncio.create_task(self._keep(), name="web-workflow-engine")
        try:
            yield
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper

    async def carry(self, kind: str, workflow_id: str, **arguments: Any) -> None:
        """Have a command of :func:`kingdom.workflow.serving.carriers` carried out, and wait for it.

        Raises what the use case raises, or :class:`kingdom.workflow.commands.CommandRefused` and
        :class:`~kingdom.workflow.commands.NoAnswer` when another process runs the engine.
        """
        if self.is_engine:
            await self._carriers[kind](workflow_id, **arguments)
            return
        bus = self._parts.store.bus
        await answer(bus, await ask(bus, kind, workflow_id, **arguments), _PATIENCE)

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
                async with serving(self._parts, patience=0) as engine:
                    self.is_engine = True
                    await engine.wait()
            except StoreTaken:
                pass
            except Exception:  # an engine that breaks is made anew; nothing is lost with it
                log.exception("the workflow engine broke; it is started again")
            finally:
                self.is_engine = False
            await asyncio.sleep(_AGAIN)
