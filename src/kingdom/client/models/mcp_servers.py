"""The types of mcp servers. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class McpServer(TypedDict):
    """An MCP server: a command to run, or a URL to speak to."""

    id: str
    name: str
    command: list[str]
    url: str | None
    env: dict[str, str]
    usedBy: list[str]


class McpServerBody(TypedDict):
    """An MCP server to register: a command or a URL, one of them."""

    name: str
    command: NotRequired[list[str]]
    url: NotRequired[str | None]
    env: NotRequired[dict[str, str]]
