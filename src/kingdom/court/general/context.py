"""Context of a general and of its tasks: services, task history, progress files."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.mcp import McpConfigFiles
from kingdom.base.files import encode_json, read_json, write_atomic
from kingdom.court.batch_writer import BatchWriter
from kingdom.court.errors import InvalidId
from kingdom.court.general.errors import TaskRefused
from kingdom.court.general.results import GeneralJournal
from kingdom.court.general.workspace import Workspace, allows_local, configured_url
from kingdom.court.home import check_name, named_path
from kingdom.court.models import subject_of

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.port import Agents, Outcome
    from kingdom.bus import EventBus
    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.models import Task
    from kingdom.court.packages.installed import GeneralPackage as Package
    from kingdom.court.packages.manifest import Manifest


# What a task goes on from: the tasks before it that asked a person, back to the one it began as.
#
# A result names the task it went on from (``original_task_id``) and the repository it worked on, so that the next one
# finds its way back.


RESUME_TYPE: Final = "resume"
_MAX_HISTORY_TASKS: Final = 1000  # questions of one piece of work


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """The former tasks of a resume, the latest first; empty for a task that begins something."""

    task_id: str
    former: tuple[str, ...] = ()
    repo: str | None = None  # what the former tasks worked on
    task_type: str | None = None  # of the task it began as

    @property
    def work_id(self) -> str:
        """The task whose place is worked in."""
        return self.former[-1] if self.former else self.task_id


def load_task_history(home: Home, task: Task) -> TaskHistory:
    """Where a task comes from. Raises :class:`TaskRefused` for a resume that names no task."""
    if task.type != RESUME_TYPE:
        return TaskHistory(task.id)
    former: list[str] = []
    repo: str | None = None
    kind: str | None = None
    before: Any = task.payload.get("original_task_id")
    while before is not None and before not in former and len(former) < _MAX_HISTORY_TASKS:
        try:
            document = read_json(home.result(before))
        except InvalidId:
            raise TaskRefused(f"the task to resume, {before!r:.80}, is not the id of a task") from None
        former.append(before)
        result = document if isinstance(document, dict) else {}
        repo = repo if repo is not None else result.get("repo")
        kind = result.get("task_type") or kind
        before = result.get("original_task_id")
    if not former:
        raise TaskRefused("a resume without original_task_id in its payload: there is nothing to go on with")
    return TaskHistory(task.id, tuple(former), repo, kind)


def latest_session(home: Home, history: TaskHistory) -> str | None:
    """The latest conversation of the former tasks, if one is known."""
    for task_id in history.former:
        try:
            session = home.session_id(task_id).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if session:
            return session
    return None


# What is known about a task besides itself: its event, the tasks it goes on from, its repository, its subject.


@dataclass(frozen=True, slots=True)
class TaskContext:
    """A task and where it comes from."""

    task: Task
    history: TaskHistory
    event: Mapping[str, Any] | None = None  # None for a schedule, and for an event that was cleaned away

    @property
    def repo(self) -> Any:
        """The repository that the task names, or the tasks before it did, or its event does. Not checked."""
        if named := (self.task.model_extra or {}).get("repo") or self.history.repo:
            return named
        # A schedule has its repository in the payload that its manifest gives it.
        return self.task.payload.get("repo") if self.event is None else self.event.get("repo")

    @property
    def type(self) -> Any:
        """The type of what happened, also for a task that goes on after an answer. Not checked."""
        return self.history.task_type or self.task.type

    @property
    def subject(self) -> str | None:
        """What the task is about, the same for all tasks about it."""
        return subject_of({"repo": self.repo, "payload": self.task.payload})


async def load_task_context(home: Home, bus: EventBus, task: Task) -> TaskContext:
    """Find out what a task comes from. Raises :class:`~kingdom.court.general.errors.TaskRefused`."""
    history = load_task_history(home, task)
    event = (task.model_extra or {}).get("event")
    if not isinstance(event, dict) or event.get("id") != task.event_id:  # a resume, or somebody made it by hand
        record = await bus.find(task.event_id)
        event = None if record is None else record.envelope.payload
    return TaskContext(task, history, event if isinstance(event, dict) else None)


# What a general notes about a task while it works on it, so that its next process goes on where this one stopped.
#
# One file for each task under way or parked: ``state/<general>/campaigns/<task>.json``. It is gone when the task is
# settled.


@dataclass(slots=True)
class TaskProgress:
    """How far a task has come."""

    task_id: str
    started_at: float
    soldier: str | None = None  # the run that is under way; None between two runs
    retries: int = 0
    restarts: int = 0  # runs that died together with us
    errors: list[str] = field(default_factory=list)  # of the runs so far
    cancelled: str | None = None  # why it shall end
    tokens: dict[str, int] = field(default_factory=dict)  # of the runs so far
    cost_usd: float | None = None

    def charge(self, outcome: Outcome) -> None:
        """Add what a run used."""
        used = outcome.tokens
        for kind in ("input", "output", "cache_read", "cache_write"):
            if count := getattr(used, kind):
                self.tokens[kind] = self.tokens.get(kind, 0) + count
        if outcome.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + outcome.cost_usd


class TaskProgressStore:
    """The notes of one general."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "campaigns"

    def load(self, task_id: str) -> TaskProgress | None:
        """The note of a task, or None when there is none that makes sense."""
        document = read_json(self._path(task_id))
        if not isinstance(document, dict) or not isinstance(document.get("started_at"), (int, float)):
            return None
        known = {item.name for item in fields(TaskProgress)}
        progress = TaskProgress(
            **{**{key: value for key, value in document.items() if key in known}, "task_id": task_id}
        )
        try:
            progress.soldier = None if progress.soldier is None else check_name("soldier", progress.soldier)
        except InvalidId:
            return None
        return progress

    def save(self, progress: TaskProgress, *, durable: bool = True) -> None:
        """Write a note."""
        path, content = self.file(progress)
        try:
            write_atomic(path, content, durable=durable)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content, durable=durable)

    def file(self, progress: TaskProgress) -> tuple[Path, bytes]:
        """Where a note is written, and what: for those who write several files together."""
        return self._path(progress.task_id), encode_json({name: getattr(progress, name) for name in progress.__slots__})

    def forget(self, task_id: str) -> None:
        """Remove the note of a task that has ended."""
        self._path(task_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a killed process was writing. Only at start, while nobody else writes here."""
        for path in self.folder.glob(".tmp-*"):
            path.unlink(missing_ok=True)

    def ids(self) -> list[str]:
        """The tasks there are notes of."""
        return sorted(path.stem for path in self.folder.glob("task-*.json"))

    def soldiers(self) -> set[str]:
        """The soldiers that may be at work."""
        progress_store = [self.load(task_id) for task_id in self.ids()]
        return {
            progress.soldier for progress in progress_store if progress is not None and progress.soldier is not None
        }

    def _path(self, task_id: str) -> Path:
        return named_path(self.folder, "task", task_id, ".json")


# What all campaigns of one general share.


Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GeneralDeps:
    """What a general reaches for outside the court; tests bring their own."""

    sleep: Sleep = asyncio.sleep
    random: Callable[[], float] = random.random
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    monotonic: Callable[[], float] = time.monotonic


class GeneralContext:
    """The services, the package and the places of one general."""

    def __init__(
        self, services: Services, package: Package, system: SystemConfig, agents: Agents, deps: GeneralDeps
    ) -> None:
        self.home: Home = services.home
        self.bus: EventBus = services.bus
        self.clock = services.clock
        self.package = package
        self.manifest: Manifest = package.manifest
        self.name = package.manifest.name
        self.system = system
        self.agents = agents
        self.deps = deps
        self.base_url = system.repos.base_url
        self.emit = GeneralJournal(services.journal, self.name)
        self.progress_store = TaskProgressStore(services.home.role(self.name))
        self.writer = BatchWriter()
        self.mcp = McpConfigFiles(services.home.role(self.name) / "mcp")
        self.workspace = Workspace(
            services.home, self.name, local=allows_local(self.base_url, self.manifest.default_repo)
        )

    @property
    def default_url(self) -> str | None:
        """Where to clone from when an event names no repository."""
        repo = self.manifest.default_repo
        return None if repo is None else configured_url(repo, self.base_url)
