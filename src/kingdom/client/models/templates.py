"""Types of responses: templates. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from kingdom.client.models.requests import GitRefFields, LandFields, McpServerRefFields, WorkFields


class ConvertedTemplate(TypedDict):
    """A template in both forms."""

    fields: TemplateFields
    yaml: str


class GitInfo(TypedDict):
    """A repository."""

    id: str
    name: str
    url: str
    usedBy: list[str]


class McpServerInfo(TypedDict):
    """An MCP server: a command or a URL."""

    id: str
    name: str
    command: list[str]
    url: str | None
    env: dict[str, str]
    usedBy: list[str]


class TemplateFields(TypedDict):
    """Fields of a template."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefFields]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    land: NotRequired[LandFields | None]
    works: list[WorkFields]


class TemplateSummary(TypedDict):
    """A template in a list."""

    id: str
    name: str
    description: str
    works: list[str]
    tasks: int
