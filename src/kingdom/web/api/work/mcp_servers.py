"""``/api/mcp-servers``: MCP servers that agents of workflows can be given."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from fastapi import Path
from pydantic import Field, StringConstraints, model_validator

from kingdom.web.api.work.routing import ID_PATTERN, Deleted, told_as, work_router
from kingdom.web.api.work.values import EnvValue, SourceName
from kingdom.web.context import Context
from kingdom.web.envelope import ApiError, ApiModel, Ok, Page, ok
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views import sources
from kingdom.web.views.redaction import HIDDEN, refuse_secrets
from kingdom.web.views.sources import McpServer
from kingdom.web.views.work_desk import work_desk
from kingdom.workflow.sources import read_sources
from kingdom.workflow.usecases.register_mcp_server import RegisterMcpServer
from kingdom.workflow.usecases.unregister_mcp_server import UnregisterMcpServer

router = work_router("mcp-servers", "MCP servers")
McpServerId: TypeAlias = Annotated[
    str, Path(alias="mcpServerId", pattern=ID_PATTERN, max_length=100, examples=["mcp-0198c2d1"])
]
_VARIABLE: Final = re.compile(r"[A-Z0-9_]+")
_HEADER: Final = re.compile(r"[A-Za-z0-9_-]+")


class McpServerBody(ApiModel):
    """An MCP server to register: a command or a URL, one of them."""

    name: SourceName = Field(examples=["tracker"])
    command: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]],
        Field(max_length=100),
    ] = Field(default_factory=list, examples=[["npx", "tracker-mcp"]])
    url: Annotated[str, StringConstraints(max_length=2000, pattern=r"^https?://[^\x00-\x20\x7f]+$")] | None = None
    env: Annotated[dict[Annotated[str, StringConstraints(max_length=100)], EnvValue], Field(max_length=100)] = Field(
        default_factory=dict,
        description="Variables of the command (`[A-Z0-9_]+`), or headers for the URL. Secrets by reference: `${NAME}`.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> McpServerBody:
        if bool(self.command) == bool(self.url):
            raise ValueError("give a command or a url, one of them")
        if self.url is not None:
            _check_url(self.url)
        allowed = _VARIABLE if self.url is None else _HEADER
        if wrong := [name for name in self.env if not allowed.fullmatch(name)]:
            raise ValueError(f"env: {wrong[0]!r:.80} is no name here: use {allowed.pattern}")
        return self


def _check_url(url: str) -> None:
    parts = urlsplit(url)  # raises ValueError, too
    if not parts.hostname:
        raise ValueError("url: it names no host")
    if parts.password is not None:
        raise ValueError("url: a password in a URL would be stored and shown: give it as a header, by reference")


@router.get("", summary="List MCP servers")
async def list_mcp_servers(context: Context, limit: Limit = 50, cursor: Cursor = None) -> Ok[Page[McpServer]]:
    """The MCP servers, the newest first. Values of variables are not shown, references to the environment are."""
    return ok(await sources.list_mcp_servers(context, limit=limit, cursor=cursor))


@router.post("", status_code=201, summary="Register an MCP server")
async def register_mcp_server(context: Context, body: McpServerBody) -> Ok[McpServer]:
    """Refused: a name that is taken (409 MCP_NAME_TAKEN), what looks like a secret (422 MCP_SECRET)."""
    refuse_secrets([(f"env.{name}", value) for name, value in body.env.items()])
    refuse_secrets([("command", word) for word in body.command] + [("url", body.url or "")])
    if HIDDEN in body.env.values():
        raise ApiError(422, "MCP_HIDDEN_VALUE", f"env: {HIDDEN} stands for a value that is not shown: give the value")
    async with work_desk(context).naming:
        if body.name in (await read_sources(context.parts.store)).mcp_servers:
            raise ApiError(409, "MCP_NAME_TAKEN", f"there is an MCP server called {body.name} already")
        server_id = await RegisterMcpServer(context.parts).execute(
            body.name, command=body.command, url=body.url, env=body.env
        )
    return ok(await sources.read_mcp_server(context, server_id))


@router.get("/{mcpServerId}", summary="Get an MCP server")
async def get_mcp_server(context: Context, mcp_server_id: McpServerId) -> Ok[McpServer]:
    """One MCP server, and who uses it."""
    return ok(await sources.read_mcp_server(context, mcp_server_id))


@router.delete("/{mcpServerId}", summary="Unregister an MCP server")
async def unregister_mcp_server(context: Context, mcp_server_id: McpServerId) -> Ok[Deleted]:
    """Templates that name it forget it. Refused while a workflow uses it (409 MCP_IN_USE)."""
    with told_as("MCP"):
        await UnregisterMcpServer(context.parts).execute(mcp_server_id)
    return ok(Deleted(id=mcp_server_id))
