"""The sentinel role: polls each configured source when it is due, each in its own task.

A slow source therefore does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.inotify import CLOSE_WRITE, MOVED_TO
from kingdom.base.inotify import FileWatcher as FileWatch
from kingdom.court.errors import InvalidConfig
from kingdom.court.sentinel.config import SentinelConfigFile, read_secret
from kingdom.court.sentinel.events import EventEmitter, SeenIndex
from kingdom.court.sentinel.local import drop_folder
from kingdom.court.sentinel.watcher import SourcePoller, SourceState, hints_folder

if TYPE_CHECKING:
    from kingdom.court.config_parts import ConfigSection
    from kingdom.court.loop import Services
    from kingdom.court.sentinel.config import SentinelConfig
    from kingdom.court.sentinel.watcher import Watcher


log = logging.getLogger("kingdom.court.sentinel")

# Each watcher is imported only when its source is configured: a court without it does not load its modules.


def _make_github(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.github_watcher import GitHubWatcher

    return GitHubWatcher(services, section, read_secret(section.token_env, "github"))


def _make_jira(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.jira_watcher import JiraWatcher

    return JiraWatcher(services, section)


def _make_local(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.local import DropFolderWatcher

    return DropFolderWatcher(services, section)


WATCHER_FACTORIES: Final[Mapping[str, Callable[[Services, Any], Watcher]]] = {
    "github": _make_github,
    "jira": _make_jira,
    "local": _make_local,
}
"""The watcher of each section of the configuration."""


class Sentinel:
    name = "sentinel"
    interval = 60.0

    def __init__(self, services: Services) -> None:
        self._services = services
        self._folder = services.home.role(self.name)
        self._config = SentinelConfigFile(services.home)
        self._seen = SeenIndex(self._folder / "seen")
        self._emitter = EventEmitter(services, self._seen)
        self._sections: dict[str, ConfigSection | None] = {}
        self._pollers: dict[str, SourcePoller] = {}
        self._polling: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        self._wake: Callable[[], None] = lambda: None
        self._files: FileWatch | None = None
        self._unwatch: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Do nothing: the cursors and the index of seen events hold all state of a former process."""

    async def tick(self) -> float | None:
        """Start a task for each poll that is due. The task wakes the role when it is done."""
        await self._apply_config()
        waits = []
        for name, poller in self._pollers.items():
            if name in self._polling:
                continue
            wait = poller.wait()
            if wait <= 0:
                task = asyncio.create_task(poller.poll(), name=f"sentinel: {name}")
                self._polling[name] = task
                task.add_done_callback(lambda _, name=name: self._poll_ended(name))  # type: ignore[misc]
            else:
                waits.append(wait)
        return min(waits, default=None)

    async def idle(self) -> None:
        """Wait until no poll is running."""
        while self._polling:
            await asyncio.wait(list(self._polling.values()))
            await asyncio.sleep(0)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when a poll has ended, for hints, and for files in the drop folder."""
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
        sources = {name: poller.report() for name, poller in self._pollers.items()}
        for name in self._problems.keys() & WATCHER_FACTORIES.keys():  # its token is not set: restarting changes that
            sources[name] = {"polls": 0, "events": 0, "problem": self._problems[name][:500], "refused": True}
        report: dict[str, Any] = {"sources": sources}
        if self._problems:
            report["problems"] = list(self._problems.values())
        if len(self._seen):
            report["seen"] = len(self._seen)
        return report

    async def stop(self) -> None:
        """Cancel the running polls; the next process continues from their cursors."""
        for name in list(self._pollers):
            await self._close(name)

    def _poll_ended(self, name: str) -> None:
        self._polling.pop(name, None)
        self._wake()

    async def _apply_config(self) -> None:
        loaded = self._config.load()
        self._note("config", loaded.problem)
        sections = {name: getattr(loaded.config, name) for name in WATCHER_FACTORIES}
        if sections == self._sections and not self._missing_pollers(sections):
            return
        for name, section in sections.items():
            if section != self._sections.get(name):
                await self._close(name)
            if name not in self._pollers and section is not None and section.enabled:
                self._open(name, section)
        self._sections = sections
        self._watch_folders(loaded.config)

    def _missing_pollers(self, sections: Mapping[str, Any]) -> bool:
        """Return whether a source could not be opened: its environment variables may be set by now."""
        return any(section and section.enabled and name not in self._pollers for name, section in sections.items())

    def _open(self, name: str, section: Any) -> None:
        try:
            watcher = WATCHER_FACTORIES[name](self._services, section)
        except InvalidConfig as error:
            self._note(name, f"{error}: kingdom connect {name} says how; then restart the court")
            return
        self._note(name, None)
        state = SourceState(self._folder, name)
        self._pollers[name] = SourcePoller(watcher, self._emitter, state, self._services.clock)

    async def _close(self, name: str) -> None:
        poller, task = self._pollers.pop(name, None), self._polling.pop(name, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if poller is not None:
            await poller.watcher.close()
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
                self._unwatch.append(self._files.add(folder, CLOSE_WRITE | MOVED_TO, lambda _: self._wake()))

    def _unwatch_folders(self) -> None:
        for undo in self._unwatch:
            undo()
        self._unwatch.clear()
