"""A sentinel in a temporary home, with a clock that is moved by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from kingdom.bus import EventBus
from kingdom.court.config_parts import ConfigSection
from kingdom.court.home import Home
from kingdom.court.loop import Services
from kingdom.court.queues import declare_queues, open_queues
from kingdom.court.sentinel.events import EventEmitter, SeenIndex
from kingdom.court.sentinel.role import WATCHER_FACTORIES
from kingdom.court.sentinel.watcher import SourcePoller, SourceState
from kingdom.journal import Journal, Reader
from tests.support.kings import Clock


class Post:
    """A home with queues, and everything a test does to it."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.clock = Clock()
        self.bus: EventBus
        for folder in (self.home.logs, self.home.config, self.home.role("sentinel")):
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Post]:
        """The same, with its queues open."""
        async with open_queues(self.home.queue_url) as self.bus:
            await declare_queues(self.bus)
            self.journal = Journal(self.home.journal, self.clock)
            yield self
            self.journal.close()

    def services(self, bus: Any = None) -> Services:
        """What a role gets."""
        return Services(self.home, bus or self.bus, self.journal, self.clock)

    @contextlib.asynccontextmanager
    async def watch(self, name: str, section: ConfigSection, bus: Any = None) -> AsyncIterator[SourcePoller]:
        """A source as a new process would watch it: only what is on disk is known."""
        services, folder = self.services(bus), self.home.role("sentinel")
        watcher = WATCHER_FACTORIES[name](services, section)
        emitter = EventEmitter(services, SeenIndex(folder / "seen"))
        try:
            yield SourcePoller(watcher, emitter, SourceState(folder, name), self.clock, jitter=lambda: 0.0)
        finally:
            await watcher.close()

    def configure(self, **sections: Any) -> None:
        """Write ``config/sentinel.yaml``."""
        (self.home.config / "sentinel.yaml").write_text(yaml.safe_dump(sections))

    def events(self) -> list[dict[str, Any]]:
        """The events in the queue, in the order in which they happened."""
        found = [json.loads(path.read_bytes()) for path in (self.home.queue / "events").glob("*/*.json")]
        return sorted(found, key=lambda event: (event["created_at"], event["id"]))

    def types(self) -> list[str]:
        """Their types, without the source."""
        return [str(event["type"]).partition(".")[2] for event in self.events()]

    def detected(self) -> list[str]:
        """The ids that the journal has as detected."""
        with Reader(self.home.journal, self.home.state / "test.cursor") as reader:
            return [str(entry.fields["event_id"]) for entry in reader.read() if entry.type == "event.detected"]

    def seen(self) -> set[str]:
        """The ids in the seen index."""
        return {path.name for path in (self.home.role("sentinel") / "seen").glob("*")}
