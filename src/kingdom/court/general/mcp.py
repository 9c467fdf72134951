"""The MCP servers that a manifest names, with the values that stand in the environment only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kingdom.court.general.errors import TaskRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.packages.manifest import Manifest, McpServer


def servers_of(manifest: Manifest, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The servers as agents are told of them. Raises :class:`TaskRefused` when a variable is missing."""
    return {name: _described(name, server, environment) for name, server in manifest.mcp_servers.items()}


def _described(name: str, server: McpServer, environment: Mapping[str, str]) -> dict[str, Any]:
    def value(variable: str) -> str:
        if variable not in environment:
            raise TaskRefused(
                f"the MCP server {name} needs the variable {variable}, and the court was started without it: set it, "
                "and start the court again"
            )
        return environment[variable]

    if server.url is not None:
        headers = {header: value(variable) for header, variable in server.headers.items()}
        return {"type": "http", "url": server.url, **({"headers": headers} if headers else {})}
    return {
        "command": server.command,
        "args": list(server.args),
        "env": {variable: value(variable) for variable in server.env},
    }
