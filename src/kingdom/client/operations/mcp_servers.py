"""The operations of mcp servers. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from kingdom.client.connection import Connection
from kingdom.client.connection import path_segment as _part
from kingdom.client.models.mcp_servers import McpServer, McpServerBody
from kingdom.client.models.shared import Deleted, Page


class McpServersOperations(Connection):
    """The operations of mcp servers."""

    def list_mcp_servers(self, *, limit: int | None = None, cursor: str | None = None) -> Page[McpServer]:
        """List MCP servers."""
        answer: Page[McpServer] = self.request("GET", "/api/mcp-servers", query={"limit": limit, "cursor": cursor})
        return answer

    def register_mcp_server(self, body: McpServerBody) -> McpServer:
        """Register an MCP server."""
        answer: McpServer = self.request("POST", "/api/mcp-servers", body=body)
        return answer

    def get_mcp_server(self, mcp_server_id: str) -> McpServer:
        """Get an MCP server."""
        answer: McpServer = self.request("GET", f"/api/mcp-servers/{_part(mcp_server_id)}")
        return answer

    def unregister_mcp_server(self, mcp_server_id: str) -> Deleted:
        """Unregister an MCP server."""
        answer: Deleted = self.request("DELETE", f"/api/mcp-servers/{_part(mcp_server_id)}")
        return answer
