"""The court as an MCP server, so that an agent can look at tasks and reports, emit an event, start a workflow."""

from __future__ import annotations

from kingdom.web.mcpserver.server import make_server

__all__ = ["make_server"]
