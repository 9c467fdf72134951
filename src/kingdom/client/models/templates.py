"""Types of responses: templates. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import TypedDict

from kingdom.client.models.requests import TemplateBody


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


TemplateFields = TemplateBody


class TemplateSummary(TypedDict):
    """A template in a list."""

    id: str
    name: str
    description: str
    works: list[str]
    tasks: int
