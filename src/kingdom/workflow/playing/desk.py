"""One engine for all tasks of a process that are done by workflows of one home.

An engine runs wherever it can be had: one process has it, the others ask it for what they want and take its place when
it is gone. So every task only asks, and looks on; who carries it out does not matter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engines import default_engines
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.lease import StoreTaken
from kingdom.workflow.serving import serving

if TYPE_CHECKING:
    from kingdom.workflow.parts import Parts

_AGAIN: Final = 1.0  # seconds between two tries to get the engine
_LOOK: Final = 0.5  # seconds between two looks at what others have given our engine to do
_CLOSING: Final = 5.0  # seconds that the end of a task waits for the engine to be given back
_ACTIVE: Final = ("PREPARING", "RUNNING", "RESUMING")


class Desk:
    """The parts of a home, with an engine whenever it can be had, for as long as somebody uses them."""

    def __init__(self, home: WorkflowHome, engines: Mapping[str, Mapping[str, Any]]) -> None:
        self.home = home
        self.users = 0
        self.closing = False
        self._engines = default_engines(engines)
        self._leave = asyncio.Event()
        self._hurry = False
        self._parts: asyncio.Future[Parts] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(), name=f"workflows of {home.root}")

    async def parts(self) -> Parts:
        """What use cases work with; raises what kept the home from being opened."""
        either: list[asyncio.Future[Any]] = [self._parts, self.task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        return self._parts.result()

    def check(self) -> None:
        """Raise what broke the engine."""
        if self.task.done():
            self.task.result()

    def take(self) -> None:
        """One more uses it."""
        self.users += 1
        self._leave.clear()

    async def give_back(self, *, hurry: bool) -> None:
        """One less uses it. After the last it is closed: at once (``hurry``), or when no workflow runs any more."""
        self.users -= 1
        if self.users:
            return
        self._hurry = self._hurry or hurry
        self._leave.set()
        await asyncio.wait([self.task], timeout=None if hurry else _CLOSING)

    async def _run(self) -> None:
        try:
            async with open_home(self.home, self._engines) as parts:
                self._parts.set_result(parts)
                while not self._leave.is_set():
                    try:
                        await self._serve(parts)
                    except StoreTaken:
                        await self._left(_AGAIN)
        finally:
            self.closing = True

    async def _serve(self, parts: Parts) -> None:
        async with serving(parts, patience=0) as engine:
            broken = asyncio.create_task(engine.wait())
            try:
                while not await self._may_close(parts):
                    if broken.done():
                        broken.result()
                    await self._left(_LOOK)
                self.closing = True
            finally:
                broken.cancel()
                await asyncio.wait([broken])

    async def _may_close(self, parts: Parts) -> bool:
        if not self._leave.is_set():
            return False
        free = self._hurry or not await _busy(parts)
        return free and self._leave.is_set()  # somebody may have come meanwhile

    async def _left(self, seconds: float) -> None:
        """Wait so long, or until nobody uses it any more."""
        if self._leave.is_set():
            await asyncio.sleep(_LOOK)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leave.wait()


async def _busy(parts: Parts) -> bool:
    """Whether a workflow runs: others may have given theirs to our engine."""
    async with parts.store.reading() as tx:
        return bool(await tx.workflows.with_status(*_ACTIVE))


class Desks:
    """The desks of a process, by home."""

    def __init__(self) -> None:
        self._desks: dict[Path, Desk] = {}
        self._lock = asyncio.Lock()

    async def take(self, home: Path, engines: Mapping[str, Mapping[str, Any]]) -> Desk:
        """The desk of a home. Whoever takes it gives it back."""
        place = WorkflowHome(home)
        async with self._lock:
            desk = self._desks.get(place.root)
            if desk is not None and (desk.closing or desk.task.done()):
                await asyncio.wait([desk.task])
                desk = None
            if desk is None:
                desk = self._desks[place.root] = Desk(place, engines)
            desk.take()
            return desk
