"""The model of ``manifest.yaml``: a general's name, engine, subscriptions, schedules and limits."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kingdom.agents.port import Profile
from kingdom.base.forms import form
from kingdom.court.config import EngineName, MachineName, NetworkHost, TimeZone, Usd
from kingdom.court.config_parts import ConfigSection, EnvName, ShortFormSection
from kingdom.court.cron import parse_cron
from kingdom.court.models import GeneralName, Priority

Notify = Literal["all", "result", "silent"]
Missed = Literal["run_once", "skip"]
Affinity = Literal["any", "repository"]
Mode = Literal["agent", "workflow"]
McpName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Za-z0-9_\-]+$", "letters, digits, _ and -, such as issue-tracker"), max_length=64
    ),
]
HeaderName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Za-z0-9!#$%&'*+.^_`|~\-]+$", "the name of a header, such as X-Api-Key"), max_length=100
    ),
]
Filter = Annotated[str, StringConstraints(min_length=1, max_length=200)]

_TYPE_PATTERN: Final = re.compile(r"(\*|[a-z0-9_]+)(\.(\*|[a-z0-9_]+))*")
# Reserved: the names of roles, also of future ones, and of folders below state/, where each general has a folder.
_ROLE_NAMES: Final = ("king", "chamberlain", "sentinel", "envoy", "supervisor", "web", "workflow")
_RESERVED_NAMES: Final = (*_ROLE_NAMES, "soldiers", "results", "prompts", "ledger")


def _checked_type_pattern(text: str) -> str:
    if _TYPE_PATTERN.fullmatch(text):
        return text
    raise ValueError(
        f"{text!r:.80} is no event type: use words of a-z 0-9 _ with dots between, each a word or *, as github.pr.*"
    )


def _checked_cron(text: str) -> str:
    parse_cron(text)
    return text


def _checked_relative_path(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text:
        raise ValueError(f"{text!r:.80} must be a path inside the worktree, as docs/report.md: not absolute, no '..'")
    return text


def _from_context(info: ValidationInfo, what: str) -> Any:
    """Return what the caller passed for validation: the name of the ``folder``, the names of the ``engines``."""
    return (info.context or {}).get(what)


class EngineChoice(ShortFormSection):
    """The engine that runs the agents. Short form: its name."""

    short_form: ClassVar[str] = "name"

    name: EngineName
    model: str | None = Field(default=None, min_length=1)
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the engine itself (``command``: argv; ``scripted``: script)."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        engines = _from_context(info, "engines")
        if engines is not None and name not in engines:
            raise ValueError(f"no engine is called {name!r}: there are {', '.join(sorted(engines))}")
        return name


_WORKFLOW_ENGINE: Final = EngineChoice(name="workflow")


class TimerSection(ConfigSection):
    """How long a run may print nothing, in seconds."""

    first_output: float = Field(default=120.0, gt=0)
    silence: float = Field(default=600.0, gt=0)


class CapSection(ConfigSection):
    """Limits of one run. None: no limit."""

    turns: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    cost_usd: float | None = Field(default=None, gt=0)


class GeneralBudget(ConfigSection):
    """Spending limits of the general. None: only the court's limits apply."""

    daily_usd: Usd | None = None
    daily_tokens: int | None = Field(default=None, ge=0)
    monthly_usd: Usd | None = None


class EventSubscription(ShortFormSection):
    """Events that the general takes. Short form: their type."""

    short_form: ClassVar[str] = "type"

    type: Annotated[str, AfterValidator(_checked_type_pattern)]
    """An event type, or a pattern: ``*`` stands for one word, at the end for one or more."""
    repos: list[Filter] = Field(default_factory=list)
    """Only these repositories (``owner/*`` for all of an owner)."""
    exclude_repos: list[Filter] = Field(default_factory=list)
    authors: list[Filter] = Field(default_factory=list)
    """Only events caused by these people."""
    exclude_authors: list[Filter] = Field(default_factory=list)
    own: bool = False
    """Only events about pull requests that this general opened. They go on with the work of the task that did."""
    priority: Priority | None = None
    """The priority of its tasks, instead of the event's."""

    @property
    def is_pattern(self) -> bool:
        return "*" in self.type

    @model_validator(mode="after")
    def _own_is_of_pull_requests(self) -> EventSubscription:
        words = self.type.split(".")
        about = words[0] in ("github", "*") and next(iter(words[1:]), "*") in ("pr", "*")
        if self.own and not about:
            raise ValueError(f"'own' is for events about pull requests, github.pr.…, not for {self.type}")
        return self


class Schedule(ConfigSection):
    """Tasks at fixed times."""

    name: GeneralName
    cron: Annotated[str, AfterValidator(_checked_cron)]
    timezone: TimeZone | None = None
    """None: the time zone of the court."""
    task_type: str = Field(default="scheduled", min_length=1, max_length=200)
    missed: Missed = "run_once"
    """When the court was down at the time: run once afterwards, however many slots were missed, or skip them."""
    priority: Priority = "normal"
    payload: dict[str, Any] = Field(default_factory=dict)


class FileEvidence(ConfigSection):
    """A file that must exist."""

    file: Annotated[str, AfterValidator(_checked_relative_path)]


class CommandEvidence(ConfigSection):
    """A program that must exit with 0. It runs in the worktree, without a shell."""

    command: list[Annotated[str, StringConstraints(min_length=1)]] = Field(min_length=1)
    timeout_seconds: float = Field(default=300.0, gt=0)


class SummaryForm(ConfigSection):
    """The form of a summary."""

    begins_with: list[Annotated[str, StringConstraints(min_length=1, max_length=100)]] = Field(default_factory=list)
    """The words of which it must begin with one, such as a verdict."""
    min_chars: int = Field(default=1, ge=1, le=100_000)
    max_lines: int | None = Field(default=None, ge=1, le=10_000)


class SummaryEvidence(ConfigSection):
    """A summary that people can use."""

    summary: SummaryForm


def _evidence_kind(value: Any) -> str | None:
    if value in ("commit", "comments"):
        return str(value)
    kinds = {"file": FileEvidence, "command": CommandEvidence, "summary": SummaryEvidence}
    return next((kind for kind, model in kinds.items() if isinstance(value, model) or _has(value, kind)), None)


def _has(value: Any, key: str) -> bool:
    return isinstance(value, dict) and key in value


Evidence = Annotated[
    Annotated[Literal["commit"], Tag("commit")]
    | Annotated[Literal["comments"], Tag("comments")]
    | Annotated[SummaryEvidence, Tag("summary")]
    | Annotated[FileEvidence, Tag("file")]
    | Annotated[CommandEvidence, Tag("command")],
    Discriminator(
        _evidence_kind,
        custom_error_type="evidence",
        custom_error_message="must be commit, comments, {file: path}, {summary: {begins_with: [word, …]}} "
        "or {command: [program, argument, …]}",
    ),
]


class McpServerSection(ConfigSection):
    """An MCP server: a program that is started for each run, or a URL."""

    command: str | None = Field(default=None, min_length=1)
    """A program on the PATH, or an absolute path: never a program of the repository."""
    args: list[str] = Field(default_factory=list)
    env: list[EnvName] = Field(default_factory=list)
    """Names of environment variables that the program gets."""
    url: str | None = Field(default=None, min_length=1)
    """The address of a server that is not a program, `https://…`."""
    headers: dict[HeaderName, EnvName] = Field(default_factory=dict)
    """For a URL: HTTP headers, each with the name of the environment variable that holds its value."""

    @field_validator("command")
    @classmethod
    def _not_of_the_repository(cls, command: str | None) -> str | None:
        if command is not None and "/" in command and not PurePosixPath(command).is_absolute():
            raise ValueError(f"{command!r:.80} would be looked for in the worktree: a name on the PATH or a whole path")
        return command

    @field_validator("url")
    @classmethod
    def _over_http(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ValueError(f"not a URL ({error})") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with https:// or http:// and name a host")
        if parts.password is not None:
            raise ValueError("a password does not belong in a file: name the variable that holds a header in 'headers'")
        return url

    @model_validator(mode="after")
    def _one_of_them(self) -> McpServerSection:
        if (self.command is None) == (self.url is None):
            raise ValueError("give command (a program) or url, one of them")
        if self.url is not None and (self.args or self.env):
            raise ValueError("'args' and 'env' are for a command: a url has 'headers'")
        if self.command is not None and self.headers:
            raise ValueError("'headers' are for a url: a command has 'env'")
        return self


class LandSection(ShortFormSection):
    """What happens with the work of a task that succeeded. Short form: how."""

    short_form: ClassVar[str] = "how"

    how: Literal["pull-request", "push", "review"]
    """``pull-request``: push the branch and open a pull request on GitHub. ``push``: only push. ``review``: post the
    summary and the comments of the result as a review of the pull request that the task is about.
    """
    base: str | None = Field(default=None, min_length=1, max_length=250)
    """The branch to merge into. None: the default branch."""
    draft: bool = False
    """Whether pull requests are opened as drafts."""
    replies: bool = True
    """Whether questions, failures and answers are posted as comments on the issue, pull request or ticket that the task
    is about, and a reaction, on a ticket a comment, shows that it has begun. A comment there since answers the
    question.
    """


class Manifest(ConfigSection):
    """The whole file."""

    name: GeneralName
    """The name of the general, of its folder and of its role."""
    description: str = Field(min_length=1, max_length=500)
    engine: EngineChoice = EngineChoice(name="claude")
    profile: Profile = "edit"
    """What soldiers may do: only read, edit files below the worktree, or anything."""
    sandbox: Literal["required"] | None = None
    """``required``: its soldiers run confined or not at all. None: as system.yaml says."""
    network: list[NetworkHost] = Field(default_factory=list, max_length=100)
    """Hosts that its confined soldiers may reach, besides their model: ``api.github.com``, ``*.example.com``."""
    mode: Mode = "agent"
    template: str | None = Field(default=None, min_length=1)
    """For mode workflow: the workflow template to run."""
    timeout_seconds: float = Field(default=1800.0, gt=0)
    timers: TimerSection = Field(default_factory=TimerSection)
    caps: CapSection = Field(default_factory=CapSection)
    retries: int = Field(default=2, ge=0, le=100)
    """How often a run that failed or timed out is retried."""
    subscribes: list[EventSubscription] = Field(default_factory=list)
    cancel_on: list[Annotated[str, AfterValidator(_checked_type_pattern)]] = Field(default_factory=list, max_length=100)
    """Events, such as ``github.issue.closed``, that end the task about the same pull request, issue or ticket."""
    order: int = 100
    """Which of several generals takes an event: the lowest order, then exact types before patterns, then by name."""
    schedules: list[Schedule] = Field(default_factory=list)
    default_repo: str | None = Field(default=None, min_length=1)
    """The repository for events that name none."""
    hold_subject_while_asking: bool = True
    """Whether further events about a pull request or ticket wait while a question about it is open."""
    needs_repo: bool = False
    """Whether its tasks make no sense without a repository. One whose event names none is refused, with the reason."""
    fetch_repo: bool = True
    """Whether a task gets a worktree of the repository."""
    concurrency: int = Field(default=1, ge=1, le=1000)
    runs_on: list[MachineName] = Field(default_factory=list, max_length=50)
    """In a court on several machines: the labels that a machine must have, such as ``gpu``."""
    affinity: Affinity = "any"
    """In a court on several machines: with ``repository``, a machine that has a clone of a task's repository may take
    the task first, for 15 seconds; with ``any``, the first that has room takes it."""
    budget: GeneralBudget = Field(default_factory=GeneralBudget)
    evidence: list[Evidence] = Field(default_factory=list)
    """What must be found before a ``success`` counts."""
    land: LandSection | None = None
    """What happens with the commits of a task that succeeded. None: they stay on the branch of the task."""
    env: list[EnvName] = Field(default_factory=list)
    """Names of environment variables that soldiers get."""
    mcp_servers: dict[McpName, McpServerSection] = Field(default_factory=dict)
    """MCP servers that soldiers may use, by name (engines `claude` and `codex`)."""
    notify: Notify = "all"
    """Which messages people get: start and end of each task, only the result, or none."""
    records_hours: float | None = Field(default=None, gt=0, le=24 * 31)
    """Add the court's records since the general's last success to the prompt, for at most this many hours."""
    memory_max_bytes: int = Field(default=20_000, ge=0, le=1_000_000)
    prompt_max_bytes: int = Field(default=200_000, ge=4_000, le=4_000_000)

    @field_validator("name")
    @classmethod
    def _fits(cls, name: str, info: ValidationInfo) -> str:
        if name in _RESERVED_NAMES:
            raise ValueError(f"{name!r} is taken by the court itself: choose another name, as gen-{name}")
        folder = _from_context(info, "folder")
        if folder not in (None, name):
            raise ValueError(f"the name is {name!r}, but the folder is {folder!r}: they must agree")
        return name

    @field_validator("schedules")
    @classmethod
    def _names_differ(cls, schedules: list[Schedule]) -> list[Schedule]:
        names = [schedule.name for schedule in schedules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two schedules are called {twice[0]!r}: each needs a name of its own")
        return schedules

    @model_validator(mode="after")
    def _template_for_workflow(self) -> Manifest:
        if self.mode == "workflow" and self.template is None:
            raise ValueError("mode is workflow, so 'template' must name the workflow template to run")
        if self.mode == "agent" and self.template is not None:
            raise ValueError("'template' is for mode: workflow")
        if self.mode == "workflow":
            if "engine" in self.model_fields_set and self.engine != _WORKFLOW_ENGINE:
                raise ValueError("mode is workflow, so there is no 'engine': the works of the template name theirs")
            if self.evidence:
                raise ValueError("'evidence' is for mode: agent; a workflow checks what it did with works of its own")
            object.__setattr__(self, "engine", _WORKFLOW_ENGINE)  # the model is frozen
        return self
