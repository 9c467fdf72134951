"""The engine: runs the handlers from the bus, for as long as it has the store to itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Self

from kingdom.bus.errors import BusError
from kingdom.workflow.lanes import Lanes
from kingdom.workflow.lease import Lease
from kingdom.workflow.parts import Parts, log
from kingdom.workflow.recovery import Recovery
from kingdom.workflow.store.transactions import STREAM

_PAGE: Final = 200
_MOMENT: Final = 0.02  # seconds between two looks: what others wrote may wait so long, unless nothing happens here


class Engine:
    """``async with Engine(parts) as engine``: recovers what a former one left, then works until it is left.

    Events that this process records are handed over as they are committed. Those of other processes are looked for
    when the bus wakes us, and every ``poll`` seconds.
    """

    def __init__(self, parts: Parts, *, owner: str | None = None, poll: float = 1.0, grace: float = 30.0) -> None:
        self.parts = parts
        self._lease = Lease(parts.store, owner)
        self._poll = poll
        self._grace = grace
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._undo: list[Callable[[], None]] = []
        self._look_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._lease.take()
        try:
            await self._start()
        except BaseException:
            self.abandon()
            await self._lease.release()
            raise
        return self

    async def _start(self) -> None:
        self._lanes = Lanes(self.parts, self._look_later)
        self._undo.append(self.parts.store.on_publish(self._lanes.add))
        self.parts.store.inline = self._lanes.inline
        self._undo.append(self._handle_nothing_inline)
        await Recovery(self.parts).run(self.idle)
        self._lanes.takes_news = True
        self._undo.append(self.parts.store.bus.subscribe(STREAM, self._wake.set))
        self._looking = asyncio.create_task(self._look_for_ever(), name="workflow-engine-look")

    async def __aexit__(self, *_: object) -> None:
        await self._stop_looking()
        await self._lanes.close(self._grace)
        await self._lease.release()

    async def idle(self) -> None:
        """Wait until there is nothing left to handle; raises what broke the engine. Agents may still be at work."""
        while True:
            await self._lanes.idle()
            before = self._lanes.opened
            # What stands behind an event that is being handled is not seen: a look counts when nothing else went on.
            if not self._lanes.busy and not await self._look() and self._lanes.opened == before:
                return

    async def wait(self) -> None:
        """Wait until the engine breaks, and raise what broke it."""
        await self._lanes.broken

    def abandon(self) -> None:
        """Stop in the middle, as if killed: nothing is finished, nothing told. The lease is left to its end."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        if self._looking is not None:
            self._looking.cancel()
        if hasattr(self, "_lanes"):
            self._lanes.abandon()
        self._lease.drop()

    def _handle_nothing_inline(self) -> None:
        self.parts.store.inline = None

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────

    def _look_later(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.002, self._wake.set)

    async def _look_for_ever(self) -> None:
        while True:
            self._wake.clear()
            try:
                found = await self._look()
            except BusError as error:
                log.warning("the engine cannot look for events: %s", error)
                found = 0
            await asyncio.sleep(_MOMENT)  # what we write ourselves wakes us, too
            if not found:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()

    async def _look(self) -> int:
        """Take up what lies in the store and was not handed over; returns how much that was."""
        async with self._look_lock:
            records = await self.parts.store.bus.peek(STREAM, limit=_PAGE, skip=self._lanes.known)
            fresh = [record.envelope for record in records if record.envelope.event_id not in self._lanes.known]
            self._lanes.add(fresh, found=True)
            return len(fresh)

    async def _stop_looking(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
