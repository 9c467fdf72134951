"""UnregisterMcpServer: an MCP server that no workflow uses is forgotten."""

from __future__ import annotations

from kingdom.workflow.domain.events import McpServerUnregistered
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import Told


class UnregisterMcpServer:
    """Forget an MCP server; templates that name it lose the reference."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def execute(self, server_id: str) -> None:
        """Forget an MCP server; raises :class:`kingdom.workflow.domain.errors.StillInUse` while a workflow uses it."""
        async with self._parts.store.transaction() as tx:
            server = await tx.mcp_servers.get(server_id)
            server.check_unused()
            await tx.mcp_servers.delete(server_id)
            tx.record(Told(McpServerUnregistered(server_id), "McpServer", server_id))
