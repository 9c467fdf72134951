"""Keep the panels of a page up to date, and share reads between visitors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from nicegui import background_tasks, ui

from kingdom.web.dashboard.components import failed, loading, tag

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.live.event import LiveEvent


T = TypeVar("T")
log = logging.getLogger("kingdom.web")
_MIN_PAUSE_SECONDS: Final = 1.0  # between two refreshes of one page, unless its visitor did something
SLOW_SECONDS: Final = 5.0  # refresh interval without events
FOLLOW_SECONDS: Final = 1.0
"""Refresh interval while a soldier runs: its output causes no events."""
_SECOND_LOOK_SECONDS: Final = 1.0  # refresh once more after an event: the first read may have been too early
_FIRST_LOAD_SECONDS: Final = 0.5  # how long the first response waits for data; slower panels are filled in later


class PagePanel(Generic[T]):
    """A part of a page: ``load`` reads its data, ``draw`` draws it, only when the data changed.

    With ``keep``, ``draw`` updates the existing elements; without it, the panel is cleared first.
    """

    def __init__(
        self, inside: Element, load: Callable[[], Awaitable[T]], draw: Callable[[T], None], *, keep: bool
    ) -> None:
        self._inside = inside
        self._load = load
        self._draw = draw
        self._keep = keep
        self._shown: list[T] = []  # the data that is shown, if any
        self._note: Element | None = None

    async def refresh(self) -> None:
        """Read the data and draw it if it changed."""
        data = await self._load()
        if self._inside.is_deleted:
            return
        self.note(None)
        if self._shown and self._shown[0] == data:
            return
        if not self._keep:
            self._inside.clear()
        self._shown.clear()  # if drawing fails, the next refresh draws again
        with self._inside:
            self._draw(data)
        self._shown.append(data)

    def note(self, draw: Callable[[], None] | None) -> None:
        """Show a note below the content until a refresh succeeds."""
        if self._note is not None:
            self._note.delete()
            self._note = None
        if draw is not None and not self._inside.is_deleted:
            with self._inside, tag("div") as self._note:
                draw()


class PageRefresher:
    """Refreshes the panels of a page while it is open: after events, and at an interval.

    Created while the page is built.
    """

    def __init__(
        self, visit: Visit, wants: Callable[[LiveEvent], bool] | None = None, *, every: float = SLOW_SECONDS
    ) -> None:
        """``wants`` selects the events that cause a refresh (default: all); ``every`` is the interval in seconds."""
        self._visit = visit
        self._wants = wants
        self.every = every
        self._panels: list[PagePanel[Any]] = []
        self._woken = asyncio.Event()
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._unlisten: Callable[[], None] | None = None
        self._client = ui.context.client

    async def panel(
        self,
        inside: Element,
        load: Callable[[], Awaitable[T]],
        draw: Callable[[T], None],
        *,
        keep: bool = False,
    ) -> PagePanel[T]:
        """Add a panel inside an element and keep it up to date.

        Data that loads quickly is part of the first response; slower data is filled in later.
        """
        panel = PagePanel(inside, load, draw, keep=keep)
        self._panels.append(panel)
        first = asyncio.ensure_future(self._refreshed(panel))
        await asyncio.wait({first}, timeout=_FIRST_LOAD_SECONDS)
        if not first.done():
            panel.note(lambda: loading(self._visit))
        self._begin()
        return panel

    def wake(self) -> None:
        """Refresh now, for example after an action on the page."""
        self._woken.set()
        self._hurried.set()

    def _begin(self) -> None:
        if self._task is None:
            self._unlisten = self._visit.context.live.listen(self._heard)
            self._task = background_tasks.create(self._run(), name="kingdom page")
            self._client.on_delete(self._end)

    def _end(self) -> None:
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        if self._task is not None:
            self._task.cancel()

    def _heard(self, events: Sequence[LiveEvent]) -> None:
        if self._wants is None or any(map(self._wants, events)):
            self._woken.set()

    async def _run(self) -> None:
        woken = False
        while True:
            await _wait(self._woken, _SECOND_LOOK_SECONDS if woken else self.every)
            woken = self._woken.is_set()
            self._woken.clear()
            self._hurried.clear()
            if self._client.has_socket_connection:  # a disconnected page need not be current
                for panel in self._panels:
                    await self._refreshed(panel)
            await _wait(self._hurried, _MIN_PAUSE_SECONDS)

    async def _refreshed(self, panel: PagePanel[Any]) -> None:
        try:
            await panel.refresh()
        except Exception as error:  # show the error in the panel and retry at the next refresh
            log.warning("cannot refresh a panel of %s: %s", self._visit.path, error, exc_info=error)
            problem = error
            panel.note(lambda: failed(self._visit, problem))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, or for so many seconds."""
    with contextlib.suppress(TimeoutError):
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with what it waits for.
        async with asyncio.timeout(seconds):
            await event.wait()


_FRESH_SECONDS: Final = 0.2  # how long a result is reused
_MAX_CACHED_READS: Final = 256


class SharedReads:
    """Caches reads for a moment: twenty open pages cost the disk as much as one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def read(self, key: Hashable, reader: Callable[[], Awaitable[T]], fresh: float = _FRESH_SECONDS) -> T:
        """Return what ``reader`` returns. Calls with the same key within ``fresh`` seconds share one read."""
        now = self._clock()
        at, task = self._kept.get(key, (0.0, None))
        if task is None or (task.done() and now - at > fresh) or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(_call_reader(reader))
            task.add_done_callback(_retrieve_exception)
            self._forget(now)
            self._kept[key] = now, task
        # a visitor who disconnects must not cancel the read of the others
        return cast(T, await asyncio.shield(task))

    def _forget(self, now: float) -> None:
        if len(self._kept) >= _MAX_CACHED_READS:
            self._kept = {key: one for key, one in self._kept.items() if now - one[0] <= _FRESH_SECONDS}


async def _call_reader(reader: Callable[[], Awaitable[T]]) -> T:
    return await reader()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception so that asyncio does not warn: every waiting caller gets it anyway."""
    if not task.cancelled():
        task.exception()
