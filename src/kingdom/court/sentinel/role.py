"""The sentinel role: polls each configured source when it is due, each in its own task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.inotify import CLOSE_WRITE, MOVED_TO
from kingdom.base.inotify import FileWatcher as FileWatch
from kingdom.court.errors import InvalidConfig
from kingdom.court.sentinel.config import SentinelConfigFile
from kingdom.court.sentinel.events import EventEmitter, SeenEvents
from kingdom.court.sentinel.local import drop_folder
from kingdom.court.sentinel.watcher import SourcePoller, SourceState, hints_folder

if TYPE_CHECKING:
    from kingdom.court.config import ConfigSection
    from kingdom.court.loop import Services
    from kingdom.court.sentinel.config import SentinelConfig
    from kingdom.court.sentinel.watcher import Watcher


# The sources there are: the name of a section of the configuration, and what makes the watcher for it.
#
# What a source needs is imported when it is watched, so that a court without one does not carry it.


def _make_github(services: Services, section: Any) -> Watcher:

    return make_jira_watcher(services, section)


def _make_jira(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.jira_watcher import make_jira_watcher

    return make_jira_watcher(services, section)


def _make_local(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.local import DropFolderWatcher

    return DropFolderWatcher(services, section)


WATCHER_FACTORIES: Final[Mapping[str, Callable[[Services, Any], Watcher]]] = {
    "github": _make_github,
    "jira": _make_jira,
    "local": _make_local,
}


# The role: looks at each source when it is time, each on its own, so that a slow one delays nobody.


log = logging.getLogger("kingdom.court.sentinel")


class Sentinel:
    """The role ``sentinel``."""

    name = "sentinel"
    interval = 60.0

    def __init__(self, services: Services) -> None:
        self._services = services
        self._folder = services.home.role(self.name)
        self._config = SentinelConfigFile(services.home)
        self._seen = SeenEvents(self._folder / "seen")
        self._emitter = EventEmitter(services, self._seen)
        self._sections: dict[str, ConfigSection | None] = {}
        self._watches: dict[str, SourcePoller] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        self._wake: Callable[[], None] = lambda: None
        self._files: FileWatch | None = None
        self._undo: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Nothing to find: what a former process left is in the cursors and the seen index."""

    async def tick(self) -> float | None:
        """Start the looks it is time for. They go on by themselves, and wake the role when they are done."""
        await self._apply_config()
        waits = []
        for name, watch in self._watches.items():
            if name in self._looking:
                continue
            wait = watch.wait()
            if wait <= 0:
                task = asyncio.create_task(watch.poll(), name=f"sentinel: {name}")
                self._looking[name] = task
                task.add_done_callback(lambda _, name=name: self._looked(name))  # type: ignore[misc]
            else:
                waits.append(wait)
        return min(waits, default=None)

    async def idle(self) -> None:
        """Wait until no look is going on."""
        while self._looking:
            await asyncio.wait(list(self._looking.values()))
            await asyncio.sleep(0)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken when a look has ended, by hints, and by files in the drop folder."""
        self._wake = wake
        self._files = FileWatch(asyncio.get_running_loop())
        self._watch_folders(self._config.load().config)

        def undo() -> None:
            self._wake = lambda: None
            self._unwatch_folders()
            if self._files is not None:
                self._files.close()
                self._files = None

        return undo

    def report(self) -> Mapping[str, Any]:
        """How each source is doing."""
        told: dict[str, Any] = {"sources": {name: watch.report() for name, watch in self._watches.items()}}
        if self._problems:
            told["problems"] = list(self._problems.values())
        if len(self._seen):
            told["seen"] = len(self._seen)
        return told

    async def stop(self) -> None:
        """End the looks that are going on; the next process goes on from their cursors."""
        for name in list(self._watches):
            await self._close(name)

    def _looked(self, name: str) -> None:
        self._looking.pop(name, None)
        self._wake()

    async def _apply_config(self) -> None:
        loaded = self._config.load()
        self._note("config", loaded.problem)
        sections = {name: getattr(loaded.config, name) for name in WATCHER_FACTORIES}
        if sections == self._sections and not self._missing_watches(sections):
            return
        for name, section in sections.items():
            if section != self._sections.get(name):
                await self._close(name)
            if name not in self._watches and section is not None and section.enabled:
                self._open(name, section)
        self._sections = sections
        self._watch_folders(loaded.config)

    def _missing_watches(self, sections: Mapping[str, Any]) -> bool:
        """Whether a source could not be opened: perhaps its environment is complete now."""
        return any(section and section.enabled and name not in self._watches for name, section in sections.items())

    def _open(self, name: str, section: Any) -> None:
        try:
            watcher = WATCHER_FACTORIES[name](self._services, section)
        except InvalidConfig as error:
            self._note(name, str(error))
            return
        self._note(name, None)
        state = SourceState(self._folder, name)
        self._watches[name] = SourcePoller(watcher, self._emitter, state, self._services.clock)

    async def _close(self, name: str) -> None:
        watch, task = self._watches.pop(name, None), self._looking.pop(name, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if watch is not None:
            await watch.watcher.close()
        self._note(name, None)

    def _note(self, name: str, problem: str | None) -> None:
        if problem is None:
            self._problems.pop(name, None)
        elif self._problems.get(name) != problem:
            self._problems[name] = problem
            log.error("%s", problem)

    def _watch_folders(self, config: SentinelConfig) -> None:
        self._unwatch_folders()
        if self._files is None:
            return
        folders = []
        if config.github is not None or config.jira is not None:
            folders.append(hints_folder(self._services.home))
        if config.local is not None and config.local.enabled:
            folders.append(drop_folder(self._services.home, config.local))
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                self._undo.append(self._files.add(folder, CLOSE_WRITE | MOVED_TO, lambda _: self._wake()))

    def _unwatch_folders(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()
