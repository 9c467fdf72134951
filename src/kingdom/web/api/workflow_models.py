"""Parameters, values and request bodies that the workflow routes share."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Path, Query
from fastapi.routing import APIRoute
from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from kingdom.web.envelope import ApiError, ApiModel
from kingdom.web.views.templates import GitRefFields, McpServerRefFields, TaskFields, TemplateFields, WorkFields
from kingdom.web.views.workflow_order import WorkflowOrder
from kingdom.workflow.adapters.queries import QueryInvalid
from kingdom.workflow.adapters.query_rendering import check_query
from kingdom.workflow.errors import NotFound, StillInUse, WorkflowError
from kingdom.workflow.store import ConcurrentChange
from kingdom.workflow.template_file import Heading, Retries, checked_name

# ── Routers and errors ──


ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
# Looked up by code: a command that another process executes returns only the code.
_PREFIXED_ERRORS: Final = {
    NotFound.code: (404, "NOT_FOUND"),
    StillInUse.code: (409, "IN_USE"),
    ConcurrentChange.code: (409, "CHANGED"),
}
WorkflowId: TypeAlias = Annotated[
    str, Path(alias="workflowId", pattern=ID_PATTERN, max_length=100, examples=["wf-0198c2d3"])
]
WorkflowSortQuery: TypeAlias = Annotated[
    WorkflowOrder,
    Query(
        description="By creation, or by a column: `progress` and `cost` the highest first, the others from A to Z; "
        "where they are equal, the newest first. A cursor belongs to its order."
    ),
]
NameSearch: TypeAlias = Annotated[
    str | None,
    Query(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="Text that the name or the issue key contains."),
]


class Deleted(ApiModel):
    """Id of the deleted item."""

    id: str = Field(examples=["git-0198c2d0"])


def workflow_router(path: str, tag: str) -> APIRouter:
    """Return a router whose operation ids are its function names in camelCase."""
    return APIRouter(prefix=f"/api/{path}", tags=[tag], generate_unique_id_function=_operation_id)


def _operation_id(route: APIRoute) -> str:
    return to_camel(route.name)


@contextlib.contextmanager
def error_prefix(prefix: str) -> Iterator[None]:
    """Add a prefix to generic error codes: ``GIT_NOT_FOUND``, ``GIT_IN_USE``, ``GIT_CHANGED``."""
    try:
        yield
    except WorkflowError as error:
        if (found := _PREFIXED_ERRORS.get(error.code)) is None:
            raise
        status, word = found
        raise ApiError(status, f"{prefix}_{word}", str(error)) from error


# ── Values ──


_MAX_JSON_CHARS: Final = 100_000


def _name_without_at(text: str) -> str:
    if "@" in text:
        raise ValueError("a name must not contain @: NAME@BRANCH selects a branch")
    return checked_name(text)


def _check_query(text: str) -> str:
    try:
        check_query(text, "a task")
    except QueryInvalid as error:
        raise ValueError(str(error).removeprefix("a task: ")) from None
    return text


def _check_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cannot be stored as JSON: {error}") from None
    if len(text) > _MAX_JSON_CHARS:
        raise ValueError(f"larger than {_MAX_JSON_CHARS:,} characters")
    return value


_NAME_CONSTRAINTS: Final = StringConstraints(strip_whitespace=True, min_length=1, max_length=100)
_NO_CONTROL: Final = r"^[^\x00-\x1f\x7f]*$"

Name: TypeAlias = Annotated[str, _NAME_CONSTRAINTS, AfterValidator(checked_name)]
SourceName: TypeAlias = Annotated[str, _NAME_CONSTRAINTS, AfterValidator(_name_without_at)]
Description: TypeAlias = Annotated[str, StringConstraints(max_length=1000)]
QueryText: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=10_000), AfterValidator(_check_query)]
Outline: TypeAlias = Annotated[list[Heading], Field(max_length=50)]
RetryCount: TypeAlias = Retries
IdText: TypeAlias = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=100)]
IssueKey: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=_NO_CONTROL)
]
Branch: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=250, pattern=r"^[^-\x00-\x20\x7f][^\x00-\x20\x7f]*$")
]
EngineName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=_NO_CONTROL)]
ModelName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_NO_CONTROL)]
Variables: TypeAlias = Annotated[dict[str, Any], AfterValidator(_check_json)]
Yaml: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200_000)]
ListPosition: TypeAlias = Annotated[int, Field(ge=0, le=10_000)]
EnvName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]+$", max_length=100)]
EnvValue: TypeAlias = Annotated[str, StringConstraints(max_length=5000, pattern=r"^[^\x00\r\n]*$")]


# ── Bodies ──


class GitRefBody(GitRefFields):
    """Reference to a repository."""

    git_id: IdText = Field(examples=["git-0198c2d0"])
    base: Branch | None = Field(default=None, description="Branch to start from; null: the default branch.")


class McpServerRefBody(McpServerRefFields):
    """Reference to an MCP server, with environment overrides."""

    mcp_server_id: IdText = Field(examples=["mcp-0198c2d1"])
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict,
        max_length=100,
        description="Overrides the server's variables. `***` is a hidden value; sent back, the value is kept.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )


class TaskBody(TaskFields):
    """A task in a plan."""

    name: Name = Field(examples=["task-1"])
    query: QueryText = Field(examples=["Fix {{ issue.key }}."])
    outline: Outline = Field(default_factory=list, description="Section headings of the report the task writes.")
    retries: RetryCount = 1


class WorkBody(WorkFields):
    """A work in a plan."""

    name: Name = Field(examples=["fix"])
    tasks: Annotated[list[TaskBody], Field(min_length=1, max_length=50)]  # type: ignore[assignment]
    engine: EngineName = Field(default="claude")
    model: ModelName | None = None
    engine_options: Variables = Field(default_factory=dict)
    mcp_server_refs: Annotated[list[McpServerRefBody], Field(max_length=20)] = Field(default_factory=list)  # type: ignore[assignment]
    after: Annotated[list[Name], Field(max_length=50)] = Field(
        default_factory=list, description="Names of the works it waits for; empty: all works before it."
    )

    @model_validator(mode="after")
    def _merges(self) -> WorkBody:
        if self.merge and len(self.after) < 2:
            raise ValueError("merge needs at least two works in `after`")
        return self


class TemplateBody(TemplateFields):
    """Fields of a template."""

    name: Name = Field(examples=["fix"])
    description: Description = ""
    git_refs: Annotated[list[GitRefBody], Field(max_length=20)] = Field(default_factory=list)  # type: ignore[assignment]
    mcp_server_refs: Annotated[list[McpServerRefBody], Field(max_length=20)] = Field(default_factory=list)  # type: ignore[assignment]
    works: Annotated[list[WorkBody], Field(min_length=1, max_length=50)]  # type: ignore[assignment]
