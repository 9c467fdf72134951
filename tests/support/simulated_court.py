"""A court that lives under a clock the test sets: events come, tasks are done or fail, files and lines are left behind.

It counts by itself what it does, so that what the chamberlain counts can be compared.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from kingdom.bus.delivery import Delivery
from kingdom.court.models import Event, Message, Task
from kingdom.court.queues import EVENTS, MESSAGES, TASKS, IdSequences, put_documents
from kingdom.journal import Reader
from tests.support.chamberlains import Watched

LEASE = 400 * 86400.0
ROLES = ("king", "sentinel", "envoy")
GENERALS = ("gen-pr", "gen-doc")


@dataclass
class Work:
    """A task under way."""

    task: Task
    event: Delivery
    soldier: str
    began: float
    ends: float


@dataclass
class Expected:
    """What was done on one day."""

    types: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cost: float = 0.0


class SimulatedCourt:
    """Everybody but the chamberlain."""

    def __init__(self, watched: Watched, seed: int) -> None:
        self.watched = watched
        self.home = watched.home
        self.random = random.Random(seed)
        self.zone = ZoneInfo(watched.system.timezone)
        self.days: dict[date, Expected] = defaultdict(Expected)
        self.outcomes: list[str] = []  # of the next tasks, where the script wants something; else as it comes
        self.cost: float | None = None  # of each task, where the script wants something
        self.arrivals = 0.3  # events in an average step
        self.discards = 0.05  # of all events
        self.king_pid: int | None = 10
        self.said: list[dict[str, Any]] = []  # every message, as the envoy saw it
        self.heard: list[tuple[str, dict[str, Any]]] = []  # every line of the chamberlain in the journal
        self._reader = Reader(watched.home.journal)
        self.work: list[Work] = []
        self._failed_last: set[str] = set()
        self._number = 0
        self._sequences = IdSequences(watched.home, watched.clock)
        for general in GENERALS:
            folder = self.home.general(general)
            folder.mkdir(parents=True)
            (folder / "manifest.yaml").write_text(f"name: {general}\ndescription: simulated\n")
            (folder / "prompt.md").write_text("x\n")

    @property
    def busy(self) -> bool:
        return bool(self.work)

    def today(self) -> Expected:
        return self.days[datetime.fromtimestamp(self.watched.now, self.zone).date()]

    async def live(self) -> None:
        """What happens in one step."""
        for role in (*ROLES, *GENERALS):
            if role != "king":
                self.watched.beat(role, 20)
            elif self.king_pid is not None:
                self.watched.beat("king", self.king_pid)
        while self.random.random() < self.arrivals:
            await self.detect()
        if self.king_pid is not None:
            await self.dispatch()
        for work in [work for work in self.work if work.ends <= self.watched.now]:
            self.work.remove(work)
            await self._finish(work)
        await self._speak()
        self.heard += [(entry.type, entry.fields) for entry in self._reader.read() if entry.actor == "chamberlain"]

    def emit(self, kind: str, actor: str, **data: object) -> None:
        self.watched.emit(kind, actor, **data)
        self.today().types[kind] += 1

    async def detect(self) -> None:
        self._number += 1
        name = f"evt-github-{self._number}"
        event = Event(id=name, type="github.pr.opened", source="github", created_at=self._moment())
        await put_documents(self.watched.services.bus, [event])
        self.watched.old(f"state/sentinel/seen/{name}", 0, "")
        self.emit("event.detected", "sentinel", event_id=name, source="github", event_type=event.type)

    async def dispatch(self) -> None:
        bus, now = self.watched.services.bus, self.watched.now
        for held in await bus.claim(EVENTS, worker="king", limit=100, lease=LEASE):
            (task_id,) = self._sequences.tasks()
            general = self.random.choice(GENERALS)
            if self.random.random() < self.discards:
                self.emit("event.discarded", "king", event_id=held.event_id, event_type="x.y", reason="nobody")
                await bus.settle(done=[held])
                continue
            task = Task(
                id=task_id, event_id=held.event_id, target_general=general, type="review", created_at=self._moment()
            )
            await put_documents(bus, [task])
            soldier = f"soldier-{self._number}-{len(self.work)}{int(now)}"
            self.emit("task.created", "king", task_id=task_id, event_type="x.y", target_general=general, priority="low")
            self.emit("event.dispatched", "king", event_id=held.event_id, task_id=task_id, target_general=general)
            self.emit("task.started", general, task_id=task_id)
            self.emit("soldier.spawned", general, task_id=task_id, soldier_id=soldier)
            self.watched.old(f"state/prompts/{task_id}.md", 0, "prompt " * 100)
            self.watched.barracks.add(soldier, now)
            seconds = self.random.uniform(60, 5000)
            self.work.append(Work(task, held, soldier, now, now + seconds))

    async def _finish(self, work: Work) -> None:
        bus, general, task_id = self.watched.services.bus, work.task.target_general, work.task.id
        seconds = round(self.watched.now - work.began)
        outcome = self._outcome(general)
        named = {"task_id": task_id, "soldier_id": work.soldier}
        if outcome == "timeout":
            self.emit("soldier.timeout", general, **named, timeout_seconds=1800)
        elif outcome != "crash":  # a soldier that crashed says nothing
            self.emit("soldier.completed", general, **named, status=outcome)
        if outcome == "success":
            self.emit("task.completed", general, task_id=task_id, status="success", duration_seconds=seconds)
            self.today().seconds[general].append(seconds)
        else:
            self.emit("task.failed", general, task_id=task_id, error=outcome, retry_count=2)
        cost = self.random.uniform(0.05, 0.5) if self.cost is None else self.cost
        self.watched.spend(cost, 1000, general)
        self.today().cost += cost
        for ending in (".json", "-raw.json", "-soldier-id", "-session-id"):
            self.watched.old(f"state/results/{task_id}{ending}", 0, "result " * 50)
        self.watched.old(f"logs/sessions/{work.soldier}.json", 0, "transcript " * 500)
        del self.watched.barracks.found[work.soldier]
        await bus.settle(done=await bus.claim(TASKS, worker=general, ids=[task_id], lease=LEASE))
        await bus.settle(done=[work.event])
        (message_id,) = self._sequences.messages()
        await put_documents(
            bus, [Message(id=message_id, type="thread_update", content="done", created_at=self._moment())]
        )

    def _outcome(self, general: str) -> str:
        """As the script says; else never two failures in a row, so that no rule is met by chance."""
        if self.outcomes:
            return self.outcomes.pop(0)
        bad = general not in self._failed_last and self.random.random() < 0.1
        self._failed_last = self._failed_last | {general} if bad else self._failed_last - {general}
        return self.random.choice(["failed", "crash", "timeout"]) if bad else "success"

    async def _speak(self) -> None:
        bus = self.watched.services.bus
        for held in await bus.claim(MESSAGES, worker="envoy", limit=100):
            self.said.append(dict(held.envelope.payload))
            await bus.settle(done=[held])
            self.emit("message.sent", "envoy", msg_id=held.event_id, task_id=None, channel="#court")

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self.watched.now, UTC)


def date_logs(watched: Watched) -> None:
    """Files that were written now were written now by the test's clock, too."""
    for path in watched.home.logs.glob("*.log*"):
        if path.stat().st_mtime > watched.now:
            os.utime(path, (watched.now, watched.now))


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow: every write fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def disk_use(watched: Watched) -> tuple[int, int]:
    """How many files there are in the home, and their bytes; but for the metrics, which are kept by size."""
    sizes = [
        os.lstat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(watched.home.root)
        for name in names
        if name != "metrics.log"
    ]
    return len(sizes), sum(sizes)
