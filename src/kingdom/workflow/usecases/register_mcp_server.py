"""RegisterMcpServer: an MCP server that agents can be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kingdom.workflow.domain.events import McpServerRegistered
from kingdom.workflow.domain.sources import McpServer
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told
from kingdom.workflow.usecases._names import check_free


class RegisterMcpServer:
    """Register an MCP server: a command to run, or a URL to speak to."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(
        self, name: str, *, command: Sequence[str] = (), url: str | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """Register an MCP server; returns its id. Raises :class:`kingdom.workflow.domain.errors.NameTaken`."""
        server = McpServer(
            self._parts.ids.new("mcp"), name, command=tuple(command), url=url, env=dict(env or {})
        )  # fmt: skip
        async with self._parts.store.transaction() as tx:
            await check_free(tx.mcp_servers, name, "an MCP server")
            await tx.mcp_servers.save(server)
            tx.record(Told(McpServerRegistered(server.id), "McpServer", server.id))
        return server.id
