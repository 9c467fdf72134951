"""From the sources into the feed, and from there to everybody who listens.

The process that has the lock of the feed reads the sources; another one reads the feed, and takes over when the lock is
free. Either is told only of what is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.journal.wake import waking
from kingdom.web.live.event import Frame
from kingdom.web.live.feed import contiguous
from kingdom.web.live.sources import JournalSource, Missed, Source, WorkflowSource
from kingdom.workflow.store.transactions import STREAM

if TYPE_CHECKING:
    from kingdom.web.live.storing import Feed
    from kingdom.workflow.ports import Store

log = logging.getLogger("kingdom.web.live")

_LIMIT: Final = 500  # events of one source in a batch
_BEAT: Final = 0.02  # seconds between two batches: what happens meanwhile shares one commit and one message
_SOON: Final = 0.25  # seconds until the next look shortly after we were woken: that may be before there is all to see
_BUSY: Final = 1.0  # how long "shortly after" is
_LATER: Final = 5.0  # seconds between two looks in any case
_BESIDE: Final = 1.0  # the same for a process that waits to take over
_AGAIN: Final = 1.0  # seconds before another try when something is wrong


class Feeder:
    """Keeps the feed going."""

    def __init__(
        self,
        feed: Feed,
        store: Store,
        journal: Path | None,
        tell: Callable[[Sequence[Frame]], None],
        skip_to: Callable[[int], None],
    ) -> None:
        self._feed = feed
        self._store = store
        self._tell = tell
        self._skip_to = skip_to
        self._sources: list[Source] = [WorkflowSource(store)]
        if journal is not None:
            self._sources.append(JournalSource(journal, feed.in_thread))
        self._journal = journal
        self._ready = False  # whether the sources stand where the feed says
        self._told = feed.last
        self._kept: dict[str, str] = {}
        self._woken = asyncio.Event()
        self._undo: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.trouble = ""
        """Why it stands still; empty while all is well."""

    async def start(self) -> None:
        """Begin. What happens from now on gets into the feed."""
        if self._feed.is_ours:
            try:
                await self._begin()
            except Exception as error:  # noqa: BLE001 - the rest of the server is of use without it
                self._say(error)
        self._undo.append(self._store.on_publish(lambda _: self._woken.set()))
        self._undo.append(self._store.bus.subscribe(STREAM, self._woken.set))
        watched = [path for path in (self._journal, None if self._feed.is_ours else self._feed.path) if path]
        self._tasks = [asyncio.create_task(self._watch(path), name="web-feed-watch") for path in watched]
        self._tasks.append(asyncio.create_task(self._run(), name="web-feed"))

    async def stop(self) -> None:
        """End; what was not kept yet is found by the next one."""
        for undo in self._undo:
            undo()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for source in self._sources:
            await source.close()

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        last_busy = clock()
        while True:
            if self._woken.is_set():
                last_busy = clock()
            self._woken.clear()
            try:
                count = await self._round()
                self.trouble = ""
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a disk or a database, it may get better
                self._say(error)
                self._ready = False
                await asyncio.sleep(_AGAIN)
                continue
            if count:
                last_busy = clock()
            await asyncio.sleep(0 if count >= _LIMIT else _BEAT)
            if count < _LIMIT:
                # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with what it waits for.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause(clock() - last_busy)):
                        await self._woken.wait()

    def _pause(self, idle: float) -> float:
        """How long to wait for a wake-up, so many seconds after the last one."""
        if idle < _BUSY:
            return _SOON
        return _LATER if self._ready else _BESIDE

    async def _round(self) -> int:
        """Get what is new into the feed (or out of it), and tell. Returns how much it was."""
        if not self._ready:
            if not await self._feed.take():
                return await self._catch_up()
            await self._begin()
        happened = [event for source in self._sources for event in await source.read(_LIMIT)]
        places = {name: place for name, place in self._places().items() if self._kept.get(name) != place}
        if not happened and not places:
            return 0
        frames = await self._feed.append(happened, places)
        self._kept |= places
        self._told = self._feed.last
        self._tell(frames)
        return len(frames)

    async def _begin(self) -> None:
        """Have the sources stand where the feed says."""
        await self._feed.look()
        while await self._catch_up():
            pass
        missed = False
        for source in self._sources:
            try:
                await source.begin(await self._feed.place(source.name))
            except Missed as error:
                log.warning("live events begin anew: %s", error)
                missed = True
        if missed:
            await self._feed.break_off(self._places())
            self._told = self._feed.last
            self._skip_to(self._told)
        else:
            await self._feed.append([], self._places())
        self._kept = self._places()
        self._ready = True

    async def _catch_up(self) -> int:
        """Tell what another process (or this one, when something went wrong after a commit) put into the feed."""
        await self._feed.look()
        frames = await self._feed.after(self._told, _LIMIT)
        if not contiguous(frames, self._told) or (not frames and self._feed.last != self._told):
            self._told = self._feed.last
            self._skip_to(self._told)
            return 0
        if frames:
            self._told = frames[-1].sequence
            self._tell(frames)
        return len(frames)

    def _places(self) -> dict[str, str]:
        return {source.name: source.place for source in self._sources}

    async def _watch(self, path: Path) -> None:
        """Wake when a file changes, or the time has come."""
        while True:
            with contextlib.suppress(OSError):
                async with waking(path, 60.0) as wait:
                    while True:
                        await wait()
                        self._woken.set()
            await asyncio.sleep(_AGAIN)

    def _say(self, error: Exception) -> None:
        """Once per change, not once per second."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble != self.trouble:
            self.trouble = trouble
            log.error("live events stand still, trying again: %s", trouble, exc_info=error)
