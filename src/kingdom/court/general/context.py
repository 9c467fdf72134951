"""What a general and its tasks share: services, task history, progress files."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.mcp import McpConfigFiles
from kingdom.base.files import encode_json, read_json, read_object, write_atomic
from kingdom.court.batch_writer import BatchWriter
from kingdom.court.config import load_system
from kingdom.court.errors import InvalidId
from kingdom.court.general.errors import RepositoryUnknown, TaskHeld, TaskRefused
from kingdom.court.general.posting import PendingReplies
from kingdom.court.general.workspace import Workspace, allows_local, configured_url, is_repository_name, repository_url
from kingdom.court.home import check_name, named_path
from kingdom.court.models import FOLLOW_UP_FIELD, RESUME_TYPE, Task, repository_of, subject_of
from kingdom.court.pull_requests import GITHUB_EVENTS, PULL_REQUEST_EVENTS, OpenedPullRequest, is_about_work
from kingdom.court.repositories import known_repositories, named_repository, only_repository
from kingdom.court.request_threads import is_request
from kingdom.gitops.errors import GitError, RemoteUnavailable
from kingdom.journal import JournalError
from kingdom.journal.catalog import general_actor

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.port import Agents, Outcome
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.bus import EventBus
    from kingdom.court.config import SystemConfig
    from kingdom.court.general.workspace import PullRequest, Workplace
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.packages.installed import GeneralPackage
    from kingdom.court.packages.manifest import Manifest
    from kingdom.journal import EventData

_MAX_HISTORY_TASKS: Final = 1000
ASKED_REPOSITORY: Final = "asked_repository"
"""The field of a result whose question is in which repository to work."""
_WHICH_REPOSITORY: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "unknown": "Which repository is this about? Name it as owner/name, or by its address.",
        "denied": "I cannot read the repository {repo}. Which one is this about?",
    },
    "ko": {
        "unknown": "어느 저장소에 대한 요청인가요? owner/name 또는 주소로 알려 주세요.",
        "denied": "{repo} 저장소를 읽을 수 없습니다. 어느 저장소에 대한 요청인가요?",
    },
}
_MAX_NUMBER: Final = 2**31  # of an issue or pull request
_ASIDE_SECONDS: Final = 3.0  # for what is done aside, when the general stops
Sleep = Callable[[float], Awaitable[None]]
log = logging.getLogger("kingdom.court")


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """The tasks that a resume or a follow-up continues, latest first; empty for all others.

    The result of each names the task before it (``original_task_id``), and the repository it worked on.
    """

    task_id: str
    former: tuple[str, ...] = ()
    repo: str | None = None  # of the former tasks
    task_type: str | None = None  # of the first task that the resume goes on with, not of one before a follow-up

    @property
    def work_id(self) -> str:
        """The id of the first task, whose workplace all of them use."""
        return self.former[-1] if self.former else self.task_id


def follow_up_of(task: Task) -> OpenedPullRequest | None:
    """Return the pull request that a task goes on with: an earlier task of its general opened it."""
    return OpenedPullRequest.from_document((task.model_extra or {}).get(FOLLOW_UP_FIELD))


def load_task_history(home: Home, task: Task) -> TaskHistory:
    """Read the history of a task. Raises :class:`TaskRefused` for a resume that names no task."""
    former: list[str] = []
    repo: str | None = None
    kind: str | None = None
    before: Any = task.continues
    while before is not None and before not in former and len(former) < _MAX_HISTORY_TASKS:
        try:
            result = read_object(home.result(before))
        except InvalidId:
            raise TaskRefused(f"the task to resume, {before!r:.80}, is not the id of a task") from None
        former.append(before)
        repo = repo if repo is not None else result.get("repo")
        if task.type == RESUME_TYPE and kind in (None, RESUME_TYPE):
            kind = result.get("task_type") or kind
        before = result.get("original_task_id")
    if task.type == RESUME_TYPE and not former:
        raise TaskRefused("the payload of a resume task needs original_task_id, the task to resume")
    follow_up = (task.model_extra or {}).get(FOLLOW_UP_FIELD)  # a pull request or a thread
    named = follow_up if isinstance(follow_up, dict) else {}
    work_id, worked_on = named.get("work_id"), named.get("repo")
    if isinstance(work_id, str) and work_id not in former:  # results are kept for some days only
        former.append(work_id)
    repo = repo or (worked_on if isinstance(worked_on, str) else None)
    return TaskHistory(task.id, tuple(former), repo, kind)


def latest_session(home: Home, history: TaskHistory) -> str | None:
    """Return the latest agent session of the former tasks, if one is known."""
    for task_id in history.former:
        try:
            session = home.session_id(task_id).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if session:
            return session
    return None


@dataclass(frozen=True, slots=True)
class TaskContext:
    """A task with its event and its history."""

    task: Task
    history: TaskHistory
    event: Mapping[str, Any] | None = None  # None for a schedule, and for an event that retention has removed
    answered_repo: str | None = None  # the repository that a person named when asked for it
    usual_repo: str | None = None  # for a request that names none

    @property
    def repo(self) -> Any:
        """The repository that the task, its history or its event names. It is not validated."""
        named, before = (self.task.model_extra or {}).get("repo"), self.history.repo
        first, second = (before, named) if self.task.type == RESUME_TYPE else (named, before)
        if found := self.answered_repo or first or second:
            return found
        of_event = None if self.event is None else self.event.get("repo")
        return of_event or repository_of(self.task.payload) or self.usual_repo

    @property
    def follow_up(self) -> OpenedPullRequest | None:
        """The pull request that the task goes on with."""
        return follow_up_of(self.task)

    @property
    def type(self) -> Any:
        """The type of the original event, also for a resume. It is not validated."""
        return self.history.task_type or self.task.type

    @property
    def subject(self) -> str | None:
        """What the task is about, as a key that related tasks share."""
        return subject_of({"repo": self.repo, "payload": self.task.payload})


def without_follow_up(home: Home, task_context: TaskContext) -> TaskContext:
    """Return a task without the pull request that it was to go on with. Raises :class:`TaskRefused`."""
    document = task_context.task.document()
    document.pop(FOLLOW_UP_FIELD, None)
    task = Task.model_validate(document)
    return TaskContext(task, load_task_history(home, task), task_context.event)


async def load_task_context(home: Home, bus: EventBus, task: Task) -> TaskContext:
    """Read the event and the history of a task. Raises :class:`TaskRefused`."""
    history = load_task_history(home, task)
    event = (task.model_extra or {}).get("event")
    if not isinstance(event, dict) or event.get("id") != task.event_id:  # a resume, or a task made by hand
        record = await bus.find(task.event_id)
        event = None if record is None else record.envelope.payload
    found = TaskContext(task, history, event if isinstance(event, dict) else None)
    return await asyncio.to_thread(_with_repository, home, found) if is_request(found.type) else found


def _with_repository(home: Home, task_context: TaskContext) -> TaskContext:
    """Return a request with the repository that a person named when asked for it, and the court's only one."""
    task, answered = task_context.task, None
    if task.type == RESUME_TYPE and read_object(home.result(str(task.continues))).get(ASKED_REPOSITORY):
        text = str(task.payload.get("answer") or "")
        answered = named_repository(text, known_repositories(home), load_system(home).repos.base_url, any_owner=True)
    return replace(task_context, answered_repo=answered, usual_repo=only_repository(home))


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class TaskProgress:
    """How far a task has come, so that the next process continues where this one stopped."""

    task_id: str
    started_at: float
    soldier: str | None = None  # the current run; None between two runs
    retries: int = 0
    restarts: int = 0  # runs that died together with our process
    errors: list[str] = field(default_factory=list)  # of the runs so far
    cancelled: str | None = None  # why the task is to be ended
    follow_up_ended: bool | None = None  # the pull request that it was to go on with has ended; None: not asked yet
    held: str | None = None  # why it waits for a condition outside
    held_code: str | None = None  # RATE_LIMITED: the model service; HELD: something else
    held_until: float | None = None  # when it is looked at again
    holds: int = 0  # how often in a row it was held
    tokens: dict[str, int] = field(default_factory=dict)  # of the runs so far
    cost_usd: float | None = None

    def charge(self, outcome: Outcome) -> None:
        """Add the tokens and the cost of a run."""
        used = outcome.tokens
        for kind in ("input", "output", "cache_read", "cache_write"):
            if count := getattr(used, kind):
                self.tokens[kind] = self.tokens.get(kind, 0) + count
        if outcome.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + outcome.cost_usd


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task that waits for a condition outside: why, and when it is looked at again."""

    reason: str
    until: float


class TaskProgressStore:
    """The progress files of one general: ``state/<general>/campaigns/<task>.json``, until the task is settled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "campaigns"

    def load(self, task_id: str) -> TaskProgress | None:
        """Return the progress of a task, or None when there is no valid file."""
        document = read_json(self._path(task_id))
        if not isinstance(document, dict) or not isinstance(document.get("started_at"), (int, float)):
            return None
        known = {item.name for item in fields(TaskProgress)}
        values = {key: value for key, value in document.items() if key in known}
        progress = TaskProgress(**{**values, "task_id": task_id})
        try:
            progress.soldier = None if progress.soldier is None else check_name("soldier", progress.soldier)
        except InvalidId:
            return None
        return progress

    def save(self, progress: TaskProgress, *, durable: bool = True) -> None:
        path, content = self.file(progress)
        try:
            write_atomic(path, content, durable=durable)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content, durable=durable)

    def file(self, progress: TaskProgress) -> tuple[Path, bytes]:
        """Return the path and content of a progress file, for a batch of writes."""
        return self._path(progress.task_id), encode_json({name: getattr(progress, name) for name in progress.__slots__})

    def forget(self, *task_ids: str) -> None:
        for task_id in task_ids:
            self._path(task_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove temporary files of killed processes. Call it at start only, before anything is written."""
        for path in self.folder.glob(".tmp-*"):
            path.unlink(missing_ok=True)

    def ids(self) -> list[str]:
        """Return the ids of the tasks that have a file."""
        return sorted(path.stem for path in self.folder.glob("task-*.json"))

    def soldiers(self) -> set[str]:
        """Return the ids of the soldiers that may be running."""
        stored = [self.load(task_id) for task_id in self.ids()]
        return {progress.soldier for progress in stored if progress is not None and progress.soldier is not None}

    def _path(self, task_id: str) -> Path:
        return named_path(self.folder, "task", task_id, ".json")


# ── the general ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class GeneralDeps:
    """Dependencies outside the court. Tests replace them."""

    sleep: Sleep = asyncio.sleep
    random: Callable[[], float] = random.random
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    monotonic: Callable[[], float] = time.monotonic
    sandbox: Sandbox | None = None  # for commands that are run as evidence; None: they are not confined


class GeneralContext:
    """What all task runs of one general share: services, configuration, workspace."""

    def __init__(
        self, services: Services, package: GeneralPackage, system: SystemConfig, agents: Agents, deps: GeneralDeps
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
        self.progress_store = TaskProgressStore(services.home.role(self.name))
        self.writer = BatchWriter()
        self.mcp = McpConfigFiles(services.home.role(self.name) / "mcp")
        self.workspace = Workspace(
            services.home,
            self.name,
            local=allows_local(self.base_url, self.manifest.default_repo),
            settings=system.git.settings(),
        )
        section = system.machine
        machine = None if section is None else section.name
        self.replies = PendingReplies(services, self.name, self.workspace, deps.monotonic, machine)
        self._aside: set[asyncio.Task[None]] = set()
        self._journal = services.journal
        self._actor = general_actor(self.name)

    def start_aside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside a soldier. What is not done when the general stops is dropped."""
        started = asyncio.create_task(work)
        self._aside.add(started)
        started.add_done_callback(self._aside.discard)
        return started

    async def stop_aside(self) -> None:
        """Wait a little for what is done aside, then drop it."""
        if self._aside:
            _, late = await asyncio.wait(self._aside, timeout=_ASIDE_SECONDS)
            for one in late:
                one.cancel()

    @property
    def default_url(self) -> str | None:
        """The URL of the manifest's repository, for events that name none."""
        repo = self.manifest.default_repo
        return None if repo is None else configured_url(repo, self.base_url)

    def emit(self, event: EventData) -> None:
        """Write an event to the journal. A journal that cannot be written does not stop the work."""
        try:
            self._journal.emit(event, self._actor)
        except JournalError as error:
            log.warning("%s: not in the journal: %s: %s", self._actor, event, error)


# ── pull requests ─────────────────────────────────────────────────────────────────────────────────────────────────────


def number_of(task_context: TaskContext, *events: str) -> int | None:
    """Return the number of the issue or pull request on GitHub that a task is about, or None."""
    number, kind = task_context.task.payload.get("number"), task_context.type
    if not isinstance(kind, str) or not kind.startswith(events or GITHUB_EVENTS):
        return None
    return number if type(number) is int and 0 < number < _MAX_NUMBER else None


def repository_url_of(context: GeneralContext, task_context: TaskContext) -> str | None:
    """Return the URL of the repository that a task works in, or None. Raises :class:`TaskRefused`."""
    if not context.manifest.fetch_repo:
        return None
    url = repository_url(task_context.repo, context.base_url) if task_context.repo else context.default_url
    if url is None and context.manifest.needs_repo:
        if is_request(task_context.type):
            raise ask_repository(context)
        raise TaskRefused(
            f"{context.name} needs a repository, and the event names none: put owner/name into `repo` of the event or "
            "of its payload, or set default_repo in the manifest"
        )
    return url


def ask_repository(context: GeneralContext, denied: str | None = None) -> RepositoryUnknown:
    """Return the error that asks a person for a repository. ``denied`` is one that the court cannot read."""
    words = _WHICH_REPOSITORY[context.system.locale]
    text = words["unknown"] if denied is None else words["denied"].format(repo=denied)
    return RepositoryUnknown(text, [repo for repo in known_repositories(context.home) if is_repository_name(repo)])


async def pull_request_of(
    context: GeneralContext, task_context: TaskContext, place: Workplace, *, fetch: bool
) -> PullRequest | None:
    """Return the pull request that a task is about or goes on with, or None.

    Without ``fetch`` its head is the one that was seen.
    """
    opened, base = task_context.follow_up, task_context.task.payload.get("base")
    number = number_of(task_context, PULL_REQUEST_EVENTS)
    if number is None and opened is not None:  # the event is about its issue
        number, base = opened.number, context.manifest.land and context.manifest.land.base
    if place.tree is None or not number:
        return None
    return await context.workspace.find_pull_request(place.tree, number, base, fetch=fetch)


async def has_ended(context: GeneralContext, task_context: TaskContext, opened: OpenedPullRequest) -> bool:
    """Whether a pull request was merged or closed. Raises :class:`TaskHeld` in an outage.

    Only events about its issue or ticket need this: those about the pull request say what its state is.
    """
    url = repository_url_of(context, task_context)
    if url is None or not is_about_work(task_context.type):
        return False
    try:
        requests = await context.workspace.pull_requests(url)
        return (await requests.find(opened.number)).state != "open"
    except RemoteUnavailable as error:
        raise TaskHeld(f"the state of {opened.url} cannot be read now: {error}") from error
    except GitError as error:  # landing will say what is wrong with the token
        log.warning("%s: whether %s is open is not known: %s", context.name, opened.url, error)
        return False
