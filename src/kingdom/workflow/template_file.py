"""The schema of a template's YAML file.

Every error is reported with its line (:mod:`kingdom.base.yamlfile`). Names of repositories, MCP servers and engines
are checked if the reader knows them (:class:`KnownNames`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kingdom.workflow.domain.landing import LandAs
from kingdom.workflow.domain.work import DEFAULT_ENGINE, DEFAULT_RETRIES
from kingdom.workflow.domain.workflow import (
    DEFAULT_ON_FAILURE,
    START,
    OnFailure,
    check_continues,
    check_merge,
    check_plan,
)
from kingdom.workflow.errors import InvalidPlan
from kingdom.workflow.plan_model import (
    Heading,
    LandFields,
    NameOf,
    Query,
    Retries,
    checked_land_text,
    checked_unique,
)

_KNOWN_KEY: Final = "known"
_WORKS_KEY: Final = "works"


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names a template may use. None: unknown to the reader, so that any name is valid."""

    repositories: Collection[str] | None = None
    mcp_servers: Collection[str] | None = None
    engines: Collection[str] | None = None

    def context(self) -> dict[str, Any]:
        """Return the validation context of the models below."""
        return {_KNOWN_KEY: self, _WORKS_KEY: []}


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _not_empty(items: list[Any]) -> list[Any]:
    if not items:
        raise ValueError("at least one is needed")
    return items


Name: TypeAlias = NameOf[str]
Env = dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]


def _work_names(info: ValidationInfo) -> list[str]:
    """Return the names of all works of the file: a Work is checked before those behind it are read."""
    names: list[str] = (info.context or {}).get(_WORKS_KEY, [])
    return names


class TemplateSection(BaseModel):
    """A part of the file: unknown keys and wrong types are errors. Types are strict: ``yes`` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class ShortSection(TemplateSection):
    """A part that may also be written as one text: the value of the key named by ``short``."""

    short: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        return {cls.short: value} if isinstance(value, str) else value


class NamedSection(ShortSection):
    """A part that names something there is; in short, only the name."""

    short: ClassVar[str] = "name"
    known: ClassVar[tuple[str, str, str]]
    """The field of :class:`KnownNames`, what the name is one of, and what to do if there is none."""

    name: Name

    @field_validator("name")
    @classmethod
    def _check_exists(cls, name: str, info: ValidationInfo) -> str:
        kind, what, advice = cls.known
        there = getattr((info.context or {}).get(_KNOWN_KEY), kind, None)
        if there is not None and name not in there:
            names = ", ".join(sorted(there)) or "none at all"
            raise ValueError(f"there is no {what} {name!r} ({names}): {advice.format(name=name)}")
        return name


class WorkEngineSection(NamedSection):
    """The engine of a Work."""

    known = ("engines", "engine", "use one of these")

    options: dict[str, Any] = Field(default_factory=dict)
    """The engine's own (``command``: argv; ``scripted``: script)."""


class RepositorySection(NamedSection):
    """A repository to work on, by its name as shown by ``kingdom git ls``."""

    known = ("repositories", "repository", "kingdom git add URL --name {name}")

    base: str | None = Field(default=None, min_length=1, max_length=250)
    """The branch to start from; default: the repository's default branch."""


class McpSection(NamedSection):
    """An MCP server for the agents, by its name as shown by ``kingdom mcp ls``."""

    known = ("mcp_servers", "MCP server", "kingdom mcp add {name} -- COMMAND registers it")

    env: Env = Field(default_factory=dict)
    """Overrides the server's own. ``${NAME}`` is a variable of the engine's environment, so that secrets stay there."""


class TaskSection(ShortSection):
    """One query to the agent of a Work; in short, only the query."""

    short: ClassVar[str] = "query"

    name: Name | None = None
    query: Query
    """May have variables: ``{{ issue.key }}`` (:mod:`kingdom.workflow.adapters.queries`)."""
    report: Annotated[list[Heading], BeforeValidator(_as_list), AfterValidator(checked_unique)] = Field(
        default_factory=list
    )
    """The sections of the report it asks for."""
    retries: Retries | None = None


class WorkSection(TemplateSection):
    """A Work: a conversation with one agent, task after task."""

    name: Name
    engine: WorkEngineSection | None = None
    model: str | None = Field(default=None, min_length=1)
    after: Annotated[list[Name], BeforeValidator(_as_list), AfterValidator(checked_unique)] = Field(
        default_factory=list
    )
    """The works it waits for; default: all works before it."""
    merge: bool = False
    """Merge the branches of the works it waits for."""
    pause_after: bool = False
    """Pause for a review before the next Work starts."""
    continues: Name | None = None
    """A Work before it with the same engine: go on in its conversation, so that the agent knows what it did there."""
    retries: Retries | None = None
    mcp: list[McpSection] = Field(default_factory=list)
    tasks: Annotated[list[TaskSection], AfterValidator(_not_empty)]

    @model_validator(mode="after")
    def _check_merge_and_tasks(self, info: ValidationInfo) -> WorkSection:
        try:
            check_merge(merge=self.merge, after=self.after)
        except InvalidPlan:
            raise ValueError("merge: true needs the works to merge, as after: [api, docs]") from None
        checked_unique(self.task_names)
        check_continues(self.name, self.continues, _work_names(info))
        return self

    @property
    def task_names(self) -> list[str]:
        """The names of its tasks; a task without one is named by its position."""
        return [task.name or f"task-{number}" for number, task in enumerate(self.tasks, 1)]

    @field_validator("name")
    @classmethod
    def _check_unique_name(cls, name: str, info: ValidationInfo) -> str:
        if _work_names(info).count(name) > 1:
            raise ValueError(f"two works are called {name!r}: each needs a name of its own")
        return name

    @field_validator("after", mode="before")
    @classmethod
    def _check_after_given(cls, after: Any) -> Any:
        if after == []:
            raise ValueError(
                "name the works to wait for, or leave `after` out: then it waits for all before it "
                f"(after: {START} waits for nobody)"
            )
        return after

    @field_validator("continues")
    @classmethod
    def _check_continued(cls, name: str | None, info: ValidationInfo) -> str | None:
        check_continues("", name, _work_names(info))
        return name

    @field_validator("after")
    @classmethod
    def _check_exists(cls, after: list[str], info: ValidationInfo) -> list[str]:
        names = _work_names(info)
        if unknown := [name for name in after if name not in names and name != START]:
            raise ValueError(f"there is no work {unknown[0]!r}: {', '.join(names)}")
        return after


LandText: TypeAlias = Annotated[str, AfterValidator(checked_land_text)]


class LandSection(LandFields, ShortSection):
    """What happens with the result when a workflow is completed; in short, only ``how``."""

    short: ClassVar[str] = "how"

    how: LandAs
    """``pull-request``: push the branches and open pull requests. ``push``: only push."""
    branch: LandText | None = None
    """The name of the branch; default: made from the issue key and the name of the workflow."""
    title: LandText | None = None
    """The title of the pull request; may have variables (:mod:`kingdom.workflow.adapters.landing_texts`)."""
    body: LandText | None = None
    """The text of the pull request; default: what each Work reports, and the cost."""


class TemplateFile(TemplateSection):
    """A template's file."""

    name: Name
    description: str = ""
    repositories: list[RepositorySection] = Field(default_factory=list)
    """If empty, each workflow names its own: ``kingdom workflow create … --repo NAME``."""
    mcp: list[McpSection] = Field(default_factory=list)
    engine: WorkEngineSection = Field(default_factory=lambda: WorkEngineSection(name=DEFAULT_ENGINE))
    """The default of its works."""
    model: str | None = Field(default=None, min_length=1)
    """The default of its works that use the same engine."""
    retries: Retries = DEFAULT_RETRIES
    """How often a failed query or report is retried before a person has to decide."""
    on_failure: OnFailure = DEFAULT_ON_FAILURE
    land: LandSection | None = None
    """Default: nothing is pushed; ``kingdom workflow land`` does it by hand."""
    works: Annotated[list[WorkSection], AfterValidator(_not_empty)]

    @model_validator(mode="before")
    @classmethod
    def _collect_work_names(cls, value: Any, info: ValidationInfo) -> Any:
        works = value.get("works") if isinstance(value, dict) else None
        if isinstance(works, list):
            _work_names(info).extend(str(work["name"]) for work in works if isinstance(work, dict) and "name" in work)
        return value

    @field_validator("works")
    @classmethod
    def _check_works(cls, works: list[WorkSection]) -> list[WorkSection]:
        check_plan((work.name, tuple(work.after)) for work in works)
        return works

    @field_validator("repositories", "mcp")
    @classmethod
    def _check_unique(cls, items: list[Any]) -> list[Any]:
        checked_unique([item.name for item in items])
        return items


def without_empty(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without its empty values."""
    return {key: value for key, value in mapping.items() if value not in (None, "", [], {}, ())}
