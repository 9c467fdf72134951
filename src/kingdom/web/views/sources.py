"""What workflows use: repositories, MCP servers, engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from kingdom.gitops.names import hide_password
from kingdom.web.envelope import ApiModel, Page, cursor_id, cursor_of, not_found
from kingdom.web.views.redaction import shown_command, shown_env, shown_url
from kingdom.web.views.workflow_state import workflow_state

if TYPE_CHECKING:
    from kingdom.web.context import WebContext
    from kingdom.workflow.domain import resources as domain


class GitInfo(ApiModel):
    """A repository."""

    id: str = Field(examples=["git-0198c2d0"])
    name: str = Field(examples=["web"])
    url: str = Field(examples=["https://github.com/acme/web.git"])
    used_by: list[str] = Field(description="Ids of the workflows that use it.", examples=[["wf-0198c2d3"]])


class McpServerInfo(ApiModel):
    """An MCP server: a command or a URL."""

    id: str = Field(examples=["mcp-0198c2d1"])
    name: str = Field(examples=["tracker"])
    command: list[str] = Field(examples=[["npx", "tracker-mcp"]])
    url: str | None = Field(examples=[None])
    env: dict[str, str] = Field(
        description="Environment of the command, or headers for the URL. References are shown, values are `***`.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )
    used_by: list[str] = Field(description="Ids of the workflows that use it.", examples=[["wf-0198c2d3"]])


async def list_gits(context: WebContext, *, limit: int = 50, cursor: str | None = None) -> Page[GitInfo]:
    """Repositories, newest first."""
    async with context.parts.store.reading() as tx:
        found = await tx.gits.list(limit=limit + 1, after=cursor_id(cursor))
    return Page(items=[shown_git(one) for one in found[:limit]], next_cursor=_next_cursor(found, limit))


async def read_git(context: WebContext, git_id: str) -> GitInfo:
    """One repository."""
    async with context.parts.store.reading() as tx:
        found = await tx.gits.find(git_id)
    if found is None:
        raise not_found("GIT", "repository", git_id)
    return shown_git(found)


async def list_mcp_servers(context: WebContext, *, limit: int = 50, cursor: str | None = None) -> Page[McpServerInfo]:
    """Return the MCP servers, newest first."""
    async with context.parts.store.reading() as tx:
        found = await tx.mcp_servers.list(limit=limit + 1, after=cursor_id(cursor))
    return Page(items=[shown_server(one) for one in found[:limit]], next_cursor=_next_cursor(found, limit))


async def read_mcp_server(context: WebContext, server_id: str) -> McpServerInfo:
    """One MCP server."""
    async with context.parts.store.reading() as tx:
        found = await tx.mcp_servers.find(server_id)
    if found is None:
        raise not_found("MCP", "MCP server", server_id)
    return shown_server(found)


def engine_names(context: WebContext) -> list[str]:
    """Return the names of the engines that works can use."""
    return sorted(workflow_state(context).engines)


def shown_git(git: domain.Git) -> GitInfo:
    """Convert a repository, with its password hidden."""
    return GitInfo(id=git.id, name=git.name, url=hide_password(git.url), used_by=sorted(git.used_by))


def shown_server(server: domain.McpServer) -> McpServerInfo:
    """Convert an MCP server, with secrets hidden."""
    return McpServerInfo(
        id=server.id,
        name=server.name,
        command=shown_command(server.command),
        url=None if server.url is None else shown_url(server.url),
        env=shown_env(server.env),
        used_by=sorted(server.used_by),
    )


def _next_cursor(found: list[domain.Git] | list[domain.McpServer], limit: int) -> str | None:
    return cursor_of(found[limit - 1].id) if len(found) > limit else None
