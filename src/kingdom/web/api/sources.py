"""`/api/gits` and `/api/mcp-servers`: repositories and MCP servers that workflows use."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from fastapi import Path
from pydantic import Field, StringConstraints, model_validator

from kingdom.gitops import InvalidInput
from kingdom.gitops.names import check_url
from kingdom.web.api.workflow_models import Deleted, SourceName, error_prefix, workflow_router
from kingdom.web.context import Context
from kingdom.web.envelope import ApiError, ApiModel, Cursor, Limit, Ok, Page, ok
from kingdom.web.views import sources
from kingdom.web.views.redaction import HIDDEN, refuse_secrets
from kingdom.web.views.sources import GitInfo, McpServerInfo
from kingdom.web.views.workflow_state import workflow_state
from kingdom.workflow import usecases
from kingdom.workflow.plan_model import ID_PATTERN, EnvValue
from kingdom.workflow.templates import read_source_ids

# ── /api/gits ──


gits_router = workflow_router("gits", "repositories")
GitId: TypeAlias = Annotated[str, Path(alias="gitId", pattern=ID_PATTERN, max_length=100, examples=["git-0198c2d0"])]


class GitBody(ApiModel):
    """A repository to register."""

    name: SourceName = Field(examples=["web"])
    url: str = Field(
        min_length=1,
        max_length=2000,
        description="`https://…`, `ssh://…`, `user@host:path`, or an absolute path on the server's machine.",
        examples=["https://github.com/acme/web.git"],
    )
    check: bool = Field(default=True, description="Try it first: can it be read, and is all it uses supported?")


@gits_router.get("", summary="List repositories")
async def list_gits(context: Context, limit: Limit = 50, cursor: Cursor = None) -> Ok[Page[GitInfo]]:
    """Repositories, newest first."""
    return ok(await sources.list_gits(context, limit=limit, cursor=cursor))


@gits_router.post("", status_code=201, summary="Register a repository")
async def create_git(context: Context, body: GitBody) -> Ok[GitInfo]:
    """The repository is tried, and cloned when a workflow first needs it.

    409 GIT_NAME_TAKEN: the name exists. 422 GIT_REFUSED: it cannot be read, or uses what is not supported.
    """
    try:
        check_url(body.url, allow_local=True)
    except InvalidInput as error:
        raise ApiError(422, "GIT_URL", str(error)) from error
    if body.check:
        await context.parts.git.check(body.url)
    async with workflow_state(context).name_lock:
        if body.name in (await read_source_ids(context.parts.store)).repositories:
            raise ApiError(409, "GIT_NAME_TAKEN", f"a repository named {body.name} already exists")
        git_id = await usecases.create_git(context.parts, body.name, body.url)
    return ok(await sources.read_git(context, git_id))


@gits_router.get("/{gitId}", summary="Get a repository")
async def get_git(context: Context, git_id: GitId) -> Ok[GitInfo]:
    """A repository and the workflows that use it."""
    return ok(await sources.read_git(context, git_id))


@gits_router.delete("/{gitId}", summary="Delete a repository")
async def delete_git(context: Context, git_id: GitId) -> Ok[Deleted]:
    """Delete a repository, its references in templates, and its clone unless workflows have commits in it.

    409 GIT_IN_USE: a workflow uses it.
    """
    with error_prefix("GIT"):
        await usecases.delete_git(context.parts, git_id)
    return ok(Deleted(id=git_id))


# ── /api/mcp-servers ──


mcp_servers_router = workflow_router("mcp-servers", "MCP servers")
McpServerId: TypeAlias = Annotated[
    str, Path(alias="mcpServerId", pattern=ID_PATTERN, max_length=100, examples=["mcp-0198c2d1"])
]
_VARIABLE_NAME: Final = re.compile(r"[A-Z0-9_]+")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


class McpServerBody(ApiModel):
    """An MCP server to register: either a command or a URL."""

    name: SourceName = Field(examples=["tracker"])
    command: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]],
        Field(max_length=100),
    ] = Field(default_factory=list, examples=[["npx", "tracker-mcp"]])
    url: Annotated[str, StringConstraints(max_length=2000, pattern=r"^https?://[^\x00-\x20\x7f]+$")] | None = None
    env: Annotated[dict[Annotated[str, StringConstraints(max_length=100)], EnvValue], Field(max_length=100)] = Field(
        default_factory=dict,
        description="Environment of the command (`[A-Z0-9_]+`), or headers for the URL. Refer to secrets as `${NAME}`.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> McpServerBody:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either a command or a url")
        if self.url is not None:
            _check_url(self.url)
        allowed = _VARIABLE_NAME if self.url is None else _HEADER_NAME
        if wrong := [name for name in self.env if not allowed.fullmatch(name)]:
            raise ValueError(f"env: {wrong[0]!r:.80} is not a valid name: use {allowed.pattern}")
        return self


def _check_url(url: str) -> None:
    parts = urlsplit(url)  # raises ValueError, too
    if not parts.hostname:
        raise ValueError("url: the host is missing")
    if parts.password is not None:
        raise ValueError("url: a password in a URL would be stored and shown; use a header with a reference instead")


@mcp_servers_router.get("", summary="List MCP servers")
async def list_mcp_servers(context: Context, limit: Limit = 50, cursor: Cursor = None) -> Ok[Page[McpServerInfo]]:
    """MCP servers, newest first. Values of variables are hidden; references to the environment are shown."""
    return ok(await sources.list_mcp_servers(context, limit=limit, cursor=cursor))


@mcp_servers_router.post("", status_code=201, summary="Register an MCP server")
async def register_mcp_server(context: Context, body: McpServerBody) -> Ok[McpServerInfo]:
    """409 MCP_NAME_TAKEN: the name exists. 422 MCP_SECRET: a value looks like a secret."""
    refuse_secrets([(f"env.{name}", value) for name, value in body.env.items()])
    refuse_secrets([("command", word) for word in body.command] + [("url", body.url or "")])
    if HIDDEN in body.env.values():
        raise ApiError(422, "MCP_HIDDEN_VALUE", f"env: {HIDDEN} is a placeholder for a hidden value: give the value")
    async with workflow_state(context).name_lock:
        if body.name in (await read_source_ids(context.parts.store)).mcp_servers:
            raise ApiError(409, "MCP_NAME_TAKEN", f"an MCP server named {body.name} already exists")
        server_id = await usecases.register_mcp_server(
            context.parts, body.name, command=body.command, url=body.url, env=body.env
        )
    return ok(await sources.read_mcp_server(context, server_id))


@mcp_servers_router.get("/{mcpServerId}", summary="Get an MCP server")
async def get_mcp_server(context: Context, mcp_server_id: McpServerId) -> Ok[McpServerInfo]:
    """An MCP server and the workflows that use it."""
    return ok(await sources.read_mcp_server(context, mcp_server_id))


@mcp_servers_router.delete("/{mcpServerId}", summary="Unregister an MCP server")
async def unregister_mcp_server(context: Context, mcp_server_id: McpServerId) -> Ok[Deleted]:
    """Remove an MCP server and its references in templates. 409 MCP_IN_USE: a workflow uses it."""
    with error_prefix("MCP"):
        await usecases.unregister_mcp_server(context.parts, mcp_server_id)
    return ok(Deleted(id=mcp_server_id))
