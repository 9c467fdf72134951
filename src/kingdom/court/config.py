"""``config/system.yaml``.

A configuration file is YAML, and is read into a model that defines its keys and their limits. Secrets never stand in
these files: a file names the environment variable that holds one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from kingdom.agents.port import SandboxMode
from kingdom.agents.sandbox.egress import HostRule
from kingdom.agents.sandbox.limits import DEFAULTS as DEFAULT_LIMITS
from kingdom.agents.sandbox.limits import DISK, FILE_SIZE, MEMORY, OPEN_FILES, PROCESSES
from kingdom.base.forms import form
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config_parts import ConfigSection, EnvName, ShortFormSection
from kingdom.court.config_web import WebSection
from kingdom.court.errors import CourtError, InvalidConfig, UnsetVariable
from kingdom.court.home import MARKER
from kingdom.gitops.commits import CommitAuthor
from kingdom.gitops.credentials import check_host
from kingdom.gitops.settings import DEFAULT_MAX_FILE_MB, GitSettings

if TYPE_CHECKING:
    from collections.abc import Collection

    from kingdom.court.home import Home


C = TypeVar("C", bound=ConfigSection)


def check_timezone(name: str) -> str:
    """Return the name of a time zone; raise ValueError when this machine does not know it."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a folder's name an OSError
        raise ValueError(
            f"unknown time zone {name!r:.80}: use a name such as Europe/Berlin, Asia/Seoul or UTC"
        ) from None
    return name


TimeZone = Annotated[str, AfterValidator(check_timezone)]


def court_zone(home: Home) -> ZoneInfo:
    """Return the time zone of a court; UTC while its configuration is invalid."""
    try:
        return ZoneInfo(load_system(home).timezone)
    except CourtError:
        return ZoneInfo("UTC")


"""The name of a time zone in the IANA database."""


Locale = Literal["en", "ko"]
Host = Literal["process", "tmux"]
Usd = Annotated[float, Field(ge=0)]
EngineName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[a-z0-9][a-z0-9_\-]*$", "small letters, digits, _ and -, such as gen-pr"), max_length=60
    ),
]


def _checked_sandbox_path(text: str) -> str:
    if not text.startswith(("/", "~/")) or ".." in Path(text).parts or "\0" in text:
        raise ValueError(f"{text!r:.80} must be an absolute path, or begin with ~/, without ..")
    if len(Path(text).expanduser().parts) < _FEWEST_PATH_PARTS:
        raise ValueError(f"{text!r:.80} is too much: name a folder in it")
    return text


def _checked_host(text: str) -> str:
    HostRule.read(text)
    return text


_FEWEST_PATH_PARTS: Final = 3
SandboxPath = Annotated[str, AfterValidator(_checked_sandbox_path)]
NetworkHost = Annotated[str, AfterValidator(_checked_host)]


class QueueSection(ConfigSection):
    """The storage of the queues."""

    transport: str | None = None
    """The URL of a database, ``postgresql://…`` or ``sqlite:///…``. None: files in ``queue/``."""
    transport_env: EnvName | None = None
    """The environment variable that holds the URL, for a URL with a password."""

    @field_validator("transport")
    @classmethod
    def _without_password(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ValueError(f"not a URL ({error})") from None
        if not parts.scheme:
            raise ValueError("not a URL: sqlite:///file.db or postgresql://host/database")
        if parts.scheme == "files":
            raise ValueError("queues on files are always in queue/ of the home: remove this key, or name a database")
        if parts.scheme == "memory":
            raise ValueError("each process would have its own queues: remove this key, or name a database")
        if parts.password:
            raise ValueError(
                "a password does not belong in a file: put the URL into an environment variable "
                "and name the variable in transport_env"
            )
        return url

    @model_validator(mode="after")
    def _one_of_them(self) -> QueueSection:
        if self.transport is not None and self.transport_env is not None:
            raise ValueError("give transport or transport_env, not both")
        return self


class ConcurrencySection(ConfigSection):
    """How many tasks run at once."""

    max_soldiers: int = Field(default=3, ge=1, le=1000)
    """Soldiers of all generals together. The limit of one general is in its manifest."""


class QuestionSection(ConfigSection):
    """Questions to people."""

    deadline_hours: float = Field(default=24.0, gt=0, le=24 * 365)
    """How long a question waits for an answer, unless the soldier sets a deadline."""


class RetriesSection(ConfigSection):
    """Retries by the king. A general's own retries are in its manifest."""

    killed: int = Field(default=2, ge=0, le=100)
    """How often a task is dispatched again when its soldier was killed from outside."""


class BudgetSection(ConfigSection):
    """Spending limits of the court. None: no limit."""

    daily_usd: Usd | None = None
    monthly_usd: Usd | None = None
    daily_tokens: int | None = Field(default=None, ge=0)
    warning_percent: float = Field(default=80.0, gt=0, le=100)
    """People get a warning from this percentage on."""


class ReposSection(ConfigSection):
    """The origin of repositories."""

    base_url: str = Field(default="https://github.com/", min_length=1)
    """The prefix of ``owner/name`` when a repository is cloned: another host, or a folder of this machine."""


EngineEnv = Annotated[
    Annotated[list[EnvName], Tag("names")] | Annotated[dict[EnvName, str], Tag("values")],
    Discriminator(
        lambda given: {list: "names", dict: "values"}.get(type(given)),
        custom_error_type="engine_env",
        custom_error_message="must be a list of names [NAME, …] or a mapping {NAME: value}",
    ),
]


def _checked_author(text: str) -> str:
    return str(CommitAuthor.parse(text))


def _checked_git_host(text: str) -> str:
    return check_host(text)


Author = Annotated[str, AfterValidator(_checked_author)]
GitHost = Annotated[str, AfterValidator(_checked_git_host)]


class TokenSection(ConfigSection):
    """A token in an environment variable."""

    env: EnvName
    """The variable that holds the token."""
    username: Annotated[str, StringConstraints(pattern=form(r"^[^\s:]+$", "a user name"), max_length=200)] | None = None
    """The user name that goes with it. Default: the one in the URL, else ``x-access-token``."""


def _kind_of_credential(given: Any) -> str | None:
    if isinstance(given, str):
        return "word"
    return "token" if isinstance(given, dict | TokenSection) else None


HostCredential = Annotated[
    Annotated[Literal["gh", "helper", "none"], Tag("word")] | Annotated[TokenSection, Tag("token")],
    Discriminator(
        _kind_of_credential,
        custom_error_type="host_credential",
        custom_error_message="must be gh, helper, none or {env: NAME}",
    ),
]
GitCredentials = Annotated[
    Annotated[Literal["helper", "none"], Tag("word")] | Annotated[dict[GitHost, HostCredential], Tag("hosts")],
    Discriminator(
        lambda given: {str: "word", dict: "hosts"}.get(type(given)),
        custom_error_type="git_credentials",
        custom_error_message="must be helper, none, or a mapping {HOST: gh, helper, none or {env: NAME}}",
    ),
]


class GitSection(ConfigSection):
    """Commits, and access to repositories. Also for workflows."""

    author: Author | None = None
    """Who commits, as ``Name <mail@example.com>``. Default: Kingdom; for agents the name in the user's git settings."""
    co_authors: list[Author] = Field(default_factory=list, max_length=20)
    """People whom the messages of commits name, as ``Co-authored-by``."""
    max_file_mb: int = Field(default=DEFAULT_MAX_FILE_MB, ge=1, le=10_000)
    """The largest file, in MiB, that a checkpoint of a workflow may add or change."""
    checkpoint_remote: str | None = Field(default=None, min_length=1, max_length=2000)
    """Where checkpoints of workflows are pushed to before they count: ``origin``, or a URL with ``{name}``.

    Engines of several machines can then share a store in PostgreSQL.
    """
    credentials: GitCredentials = Field(default_factory=dict)
    """Where the token of a host comes from. Default: GITHUB_TOKEN, GH_TOKEN or ``gh`` for github.com, else nowhere."""

    @model_validator(mode="after")
    def _readable(self) -> GitSection:
        self.settings()
        return self

    def settings(self) -> GitSettings:
        """Return the settings for the git layer."""
        return GitSettings.read(self.model_dump())


class EngineSection(ConfigSection):
    """An engine on this machine."""

    path: str | None = Field(default=None, min_length=1)
    """Its program, if it is not the one on the PATH."""
    args: list[str] = Field(default_factory=list)
    """Additional arguments."""
    env: EngineEnv = Field(default_factory=list)
    """Environment variables passed to it, for every general: names, or names with values that are not secret."""
    model: str | None = Field(default=None, min_length=1)
    """The model for generals whose manifest names none."""


class SandboxLimits(ConfigSection):
    """What each confined agent may use up, with all it starts."""

    memory_bytes: int = Field(default=DEFAULT_LIMITS[MEMORY], ge=64 * 1024**2)
    """The memory of all its processes together."""
    processes: int = Field(default=DEFAULT_LIMITS[PROCESSES], ge=16, le=1_000_000)
    """The number of its processes and threads."""
    file_bytes: int = Field(default=DEFAULT_LIMITS[FILE_SIZE], ge=1024**2)
    """The size of one file that it writes, its output included."""
    disk_bytes: int = Field(default=DEFAULT_LIMITS[DISK], ge=1024**2)
    """What all its processes together write to disks."""
    open_files: int = Field(default=DEFAULT_LIMITS[OPEN_FILES], ge=64, le=1_000_000)
    """The number of files that one of its processes has open."""


class SandboxSection(ShortFormSection):
    """The confinement of agents. Short form: its mode."""

    short_form: ClassVar[str] = "mode"

    mode: SandboxMode = "auto"
    """``auto`` confines agents where this machine can, ``required`` runs none otherwise, ``off`` never confines."""
    read: list[SandboxPath] = Field(default_factory=list, max_length=100)
    """Files and folders that confined agents may read, besides the system and their worktree: absolute, or from ~."""
    network: list[NetworkHost] = Field(default_factory=list, max_length=100)
    """Hosts that all confined agents may reach, besides their model: ``api.github.com``, ``*.example.com``."""
    limits: SandboxLimits = Field(default_factory=SandboxLimits)


MachineName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[a-z0-9][a-z0-9\-]*$", "small letters, digits and -, such as builder-2"), max_length=60
    ),
]


MACHINE_FILE: Final = "machine.yaml"
"""In ``config/``: the section of this machine alone. The other files there are the same on all that may lead."""
_NO_SHARED_QUEUES: Final = "a court on several machines has its queues in PostgreSQL: set queue.transport"


class MachineSection(ConfigSection):
    """This machine, in a court on several machines."""

    name: MachineName
    """Its name in the court."""
    joined: bool = False
    """Whether it has joined a court: it runs generals only. The machine that leads has the other roles."""
    generals: list[EngineName] | None = None
    """The generals that run on this machine. None: all of them."""
    database: str | None = None
    """The URL of the court's database as this machine reaches it. None: as ``queue`` says."""
    database_env: str | None = None
    """The environment variable that holds that URL."""
    soldiers: int | None = Field(default=None, ge=1, le=1000)
    """How many soldiers run on this machine at once. None: as many as the generals' manifests allow."""

    labels: list[MachineName] = Field(default_factory=list, max_length=50)
    """What this machine has, such as ``gpu``. A general whose ``runs_on`` names labels runs where all of them are."""

    def runs(self, general: str, labels: Collection[str]) -> bool:
        """Whether a general that needs some labels runs on this machine."""
        return (self.generals is None or general in self.generals) and set(labels) <= set(self.labels)


class SystemConfig(ConfigSection):
    """The whole file."""

    name: str = Field(default="kingdom", min_length=1, max_length=100)
    """The name of the court in messages."""
    locale: Locale = "en"
    """The language of messages."""
    timezone: TimeZone = "UTC"
    """The time zone of days (budget, reports, cleanup), and of schedules that name none."""
    channel: str = ""
    """The default channel of messages."""
    host: Host = "process"
    """How soldiers run: in a process, or in a tmux session that you can attach to."""
    queue: QueueSection = Field(default_factory=QueueSection)
    concurrency: ConcurrencySection = Field(default_factory=ConcurrencySection)
    question: QuestionSection = Field(default_factory=QuestionSection)
    retries: RetriesSection = Field(default_factory=RetriesSection)
    budget: BudgetSection = Field(default_factory=BudgetSection)
    repos: ReposSection = Field(default_factory=ReposSection)
    git: GitSection = Field(default_factory=GitSection)
    engines: dict[EngineName, EngineSection] = Field(default_factory=dict)
    sandbox: SandboxSection = Field(default_factory=SandboxSection)
    web: WebSection = Field(default_factory=WebSection)
    machine: MachineSection | None = None
    """Needed in a court on several machines only, whose queues are in PostgreSQL."""

    @model_validator(mode="after")
    def _shared_queues(self) -> SystemConfig:
        if self.machine is not None and not self.has_shared_queues:
            raise ValueError(f"machine: {_NO_SHARED_QUEUES}")
        return self

    @property
    def has_shared_queues(self) -> bool:
        """Whether the queues are named by a URL, as a court on several machines needs it."""
        return any(found is not None for found in self._queue_place())

    def _queue_place(self) -> tuple[str | None, str | None]:
        """Return the URL of the queues and the variable that holds it: those of this machine, or of the court."""
        own = self.machine
        if own is not None and (own.database is not None or own.database_env is not None):
            return own.database, own.database_env
        return self.queue.transport, self.queue.transport_env

    @property
    def queue_variable(self) -> str | None:
        """The environment variable that holds the URL of the queues, if one does."""
        return self._queue_place()[1]

    def queue_url(self, home: Home) -> str:
        """Return the URL of the queues. Raises :class:`UnsetVariable` when the variable that holds it is not set."""
        url, variable = self._queue_place()
        if variable is None:
            return url or home.queue_url
        if named := os.environ.get(variable):
            return named
        of_machine = self.machine is not None and self.machine.database_env is not None
        file, key = (MACHINE_FILE, "database_env") if of_machine else (Path(MARKER).name, "queue.transport_env")
        raise UnsetVariable(
            f"{home.config / file}: {key} names {variable}, "
            "but that environment variable is not set: set it to the URL of the database"
        )


class WorkflowSettings(ConfigSection):
    """The settings of workflows outside a court: ``workflows/settings.yaml``."""

    git: GitSection = Field(default_factory=GitSection)


def load_workflow_settings(path: Path) -> WorkflowSettings:
    """Read ``workflows/settings.yaml``, which need not exist. Raises :class:`InvalidConfig` with every problem."""
    return _load(path, WorkflowSettings) if path.exists() else WorkflowSettings()


def load_system(home: Home) -> SystemConfig:
    """Read ``config/system.yaml``, with the ``machine`` section from this machine's own file if it has one.

    Raises :class:`InvalidConfig` with every problem, its file and its line.
    """
    system, own = _load(home.root / MARKER, SystemConfig), home.config / MACHINE_FILE
    if not own.exists():
        return system
    merged = system.model_copy(update={"machine": _load(own, MachineSection)})
    if not merged.has_shared_queues:
        raise InvalidConfig(f"{own}: {_NO_SHARED_QUEUES}")
    return merged


def _load(path: Path, model: type[C]) -> C:
    try:
        return load_yaml(path, model)
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None
