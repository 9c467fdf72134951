"""The types of several groups. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """One page of a list."""

    items: list[T]
    nextCursor: str | None
    total: NotRequired[int]


class Deleted(TypedDict):
    """What is gone."""

    id: str


class ErrorBody(TypedDict):
    """What was wrong, where, and what to do."""

    code: str
    message: str
    details: NotRequired[list[Any]]


class Failed(TypedDict):
    """An answer to a request that was refused or failed."""

    success: NotRequired[Literal[False]]
    error: ErrorBody
    timestamp: NotRequired[str]


class GitRefBody(TypedDict):
    """A repository of a template or workflow."""

    gitId: str
    base: NotRequired[str | None]


class GitRefFields(TypedDict):
    """A repository of a template or workflow."""

    gitId: str
    base: NotRequired[str | None]


class McpServerRefBody(TypedDict):
    """An MCP server of a template, workflow or work."""

    mcpServerId: str
    env: NotRequired[dict[str, Any]]


class McpServerRefFields(TypedDict):
    """An MCP server of a template, workflow or work."""

    mcpServerId: str
    env: NotRequired[dict[str, str]]


class RoleState(TypedDict):
    """One role."""

    name: str
    state: str
    pid: int | None
    heartbeatSeconds: float | None
    deaths: int
    reason: str


class Taken(TypedDict):
    """What became of a webhook. It is durable."""

    delivery: str
    outcome: Literal["hint", "events", "ignored"]
    events: list[str]


class TaskBody(TypedDict):
    """A task of a plan."""

    name: str
    query: str
    outline: NotRequired[list[str]]
    retries: NotRequired[int]


class TaskFields(TypedDict):
    """A task of a plan."""

    name: str
    query: str
    outline: NotRequired[list[str]]
    retries: NotRequired[int]


class Template(TypedDict):
    """A template that is kept."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefFields]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    works: list[WorkFields]
    id: str
    version: int


class WorkBody(TypedDict):
    """A work of a plan."""

    name: str
    tasks: list[TaskBody]
    engine: NotRequired[str]
    model: NotRequired[str | None]
    engineOptions: NotRequired[dict[str, Any]]
    mcpServerRefs: NotRequired[list[McpServerRefBody]]
    after: NotRequired[list[str]]
    merge: NotRequired[bool]
    pauseAfter: NotRequired[bool]


class WorkFields(TypedDict):
    """A work of a plan."""

    name: str
    tasks: list[TaskFields]
    engine: NotRequired[str]
    model: NotRequired[str | None]
    engineOptions: NotRequired[dict[str, Any]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    after: NotRequired[list[str]]
    merge: NotRequired[bool]
    pauseAfter: NotRequired[bool]


class YamlText(TypedDict):
    """The text of a YAML file."""

    yaml: str
