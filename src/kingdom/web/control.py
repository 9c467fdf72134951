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
