"""The MCP servers of an order: a file ``{"mcpServers": {name: {command, args, env} | {url, headers}}}``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kingdom.agents.errors import InvalidOrder

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


@dataclass(slots=True)
class CodexServers:
    """MCP servers as codex takes them. What may be secret goes by the environment: arguments are seen by everybody."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def mcp_servers(path: Path) -> dict[str, Mapping[str, Any]]:
    """The servers that a file declares, by name."""
    try:
        servers = json.loads(path.read_bytes())["mcpServers"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidOrder(f'{path} cannot be read as {{"mcpServers": {{…}}}}: {error}') from None
    if not isinstance(servers, dict):
        raise InvalidOrder(f"{path}: mcpServers must be an object")
    for name, server in servers.items():
        if not _NAME.match(name):
            raise InvalidOrder(f"{path}: the MCP server {name!r:.80} must be named with letters, digits, - and _")
        if not isinstance(server, dict) or not isinstance(server.get("command") or server.get("url"), str):
            raise InvalidOrder(f"{path}: the MCP server {name} needs a command or a url")
    return servers


def codex_servers(path: Path) -> CodexServers:
    """The servers of a file in the words of codex's configuration."""
    made = CodexServers()
    for name, server in mcp_servers(path).items():
        if "url" in server:
            headers = {}
            for number, (header, value) in enumerate(sorted(dict(server.get("headers") or {}).items())):
                variable = f"KINGDOM_MCP_{name.upper().replace('-', '_')}_{number}"
                _put(made, path, variable, value)
                headers[header] = variable
            made.tables[name] = {"url": server["url"], **({"env_http_headers": headers} if headers else {})}
        else:
            env = dict(server.get("env") or {})
            for variable, value in env.items():
                _put(made, path, variable, value)
            made.tables[name] = {
                "command": server["command"],
                "args": list(server.get("args") or ()),
                **({"env_vars": sorted(env)} if env else {}),
            }
    for table in made.tables.values():
        table["default_tools_approval_mode"] = "approve"  # who gave the order chose the servers; nobody is there to ask
    return made


def _put(made: CodexServers, path: Path, variable: str, value: object) -> None:
    if not isinstance(value, str) or made.env.setdefault(variable, value) != value:
        raise InvalidOrder(f"{path}: {variable} must be one text, the same for every MCP server that uses it")
