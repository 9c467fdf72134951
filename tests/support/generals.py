"""A home with one general in it, and everything to have it work."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kingdom.agents.port import Agents
from kingdom.bus import EventBus
from kingdom.court.config import SystemConfig
from kingdom.court.general import General
from kingdom.court.general.context import GeneralDeps
from kingdom.court.home import Home
from kingdom.court.loop import Services
from kingdom.court.models import Event, Task
from kingdom.court.packages.installed import GeneralPackage as Package
from kingdom.court.packages.manifest import Manifest
from kingdom.court.queues import declare_queues, open_queues, put_documents
from kingdom.journal import Journal, JournalEvent, parse
from tests.support.fake_agents import FakeAgents

NOW = 1_790_000_000.0
PROMPT = "Do this:\n{{ data }}\n{{ report }}"


class Post:
    """A general at its post: the home, the queue, the package; ``general()`` makes the role."""

    def __init__(self, root: Path, bus: EventBus, **manifest: Any) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.bus = bus
        self.now = NOW
        self.naps: list[float] = []
        self.uptime = 0.0
        self.base_url: str | None = None
        self.system: dict[str, Any] = {}
        self.manifest = Manifest.model_validate({"name": "gen-test", "description": "For tests.", **manifest})
        self.folder = self.home.general("gen-test")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "prompt.md").exists():
            self.prompt(PROMPT)
        self.home.logs.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(self.home.journal, lambda: self.now)
        self.agents: Agents = FakeAgents(root / "agents")
        self.woken = asyncio.Event()
        self._ends = contextlib.ExitStack()  # of what its generals watch: a user may have 128 such watches

    def prompt(self, text: str) -> None:
        (self.folder / "prompt.md").write_text(text)

    async def nap(self, seconds: float) -> None:
        self.naps.append(seconds)

    def general(self, **deps: Any) -> General:
        services = Services(self.home, self.bus, self.journal, lambda: self.now)
        usual = {"sleep": self.nap, "random": lambda: 0.0, "monotonic": lambda: self.uptime}
        package = Package(self.manifest, self.folder)
        repos = {"repos": {"base_url": self.base_url}} if self.base_url else {}
        system = SystemConfig.model_validate({**repos, **self.system})
        general = General(services, package, system, self.agents, GeneralDeps(**{**usual, **deps}))
        self._ends.callback(general.subscribe(self.woken.set))
        return general

    def close(self) -> None:
        self._ends.close()
        self.journal.close()

    async def task(self, number: int = 1, /, *, repo: str | None = None, **fields: Any) -> Task:
        """Put an event and its task into the queues."""
        event = Event.model_validate(
            {
                "id": f"evt-test-{number}",
                "type": "test.happened",
                "source": "test",
                "repo": repo,
                "created_at": "2026-09-21T12:00:00Z",
            }
        )
        document = {
            "id": f"task-20260921-{number:03d}",
            "event_id": event.id,
            "target_general": "gen-test",
            "type": "test.happened",
            "payload": {"title": "Something"},
            "created_at": "2026-09-21T12:00:00Z",
            **fields,
        }
        task = Task.model_validate(document)
        await put_documents(self.bus, [event, task])
        return task

    async def work(self, general: General, until: Callable[[], bool]) -> None:
        """Let a general look at the court, as often as it is woken, until something has happened."""
        async with asyncio.timeout(30):
            while True:
                self.woken.clear()
                await general.tick()
                if until():
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.woken.wait(), 0.05)

    async def finish(self, *tasks: Task, general: General | None = None) -> list[dict[str, Any]]:
        """Have tasks done by a general from its start to its stop, and return their results."""
        general = general or self.general()
        await general.start()
        try:
            await self.work(general, lambda: all(self.state(task) == "completed" for task in tasks))
        finally:
            await general.stop()
        return [self.result(task) for task in tasks]

    def state(self, task: Task) -> str:
        """The directory a task lies in."""
        found = [path.parent.name for path in self.home.queue.glob(f"tasks/*/{task.id}*.json")]
        assert len(found) == 1, f"{task.id} lies in {found}"
        return found[0]

    def status(self, task: Task) -> str:
        """The status that stands in a task's file."""
        (path,) = self.home.queue.glob(f"tasks/*/{task.id}*.json")
        return str(json.loads(path.read_text())["status"])

    def result(self, task: Task) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.home.result(task.id).read_text())
        return document

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        """What is in the journal: types and data."""
        entries = [parse(line) for line in self.home.journal.read_bytes().splitlines()]
        return [(entry.type, entry.data.to_dict()) for entry in entries if isinstance(entry, JournalEvent)]


@contextlib.asynccontextmanager
async def posted(root: Path, **manifest: Any) -> AsyncIterator[Post]:
    """A post whose queues are open."""
    home = Home(root / "home")
    async with open_queues(home.queue_url) as bus:
        await declare_queues(bus)
        post = Post(root, bus, **manifest)
        try:
            yield post
        finally:
            post.close()
