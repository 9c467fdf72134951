"""The MCP servers of a run: the file that lists them, and their form in codex's configuration.

The file has the form ``{"mcpServers": {name: {command, args, env} | {url, headers}}}``. It may contain secrets: only
our user can read it, and it exists only while the run does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.errors import InvalidOrder
from kingdom.base.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Collection


class McpConfigFiles:
    """The files of a folder, one for each run with MCP servers (:attr:`kingdom.agents.port.Order.mcp_config`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def write(self, run_id: str, servers: Mapping[str, Mapping[str, Any]]) -> Path | None:
        """Write the file of a run and return its path; None when there are no servers."""
        if not servers:
            return None
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(run_id)
        write_atomic(path, json.dumps({"mcpServers": servers}), durable=False, mode=0o600)
        return path

    def remove(self, run_id: str) -> None:
        """Remove the file of a run, if there is one."""
        self._path(run_id).unlink(missing_ok=True)

    def sweep(self, keep: Collection[str]) -> None:
        """Remove files that a killed process left, except those of the given runs."""
        kept = {self._path(run_id) for run_id in keep}
        for path in self._folder.glob("*") if self._folder.is_dir() else ():
            if path not in kept:
                path.unlink(missing_ok=True)

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"


_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


@dataclass(slots=True)
class CodexServers:
    """MCP servers in codex's configuration. Secrets are passed in the environment: every user can see arguments."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def mcp_servers(path: Path) -> dict[str, Mapping[str, Any]]:
    """Read the servers in a file, by name. Raises :class:`InvalidOrder`."""
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
    """Read the servers in a file, and convert them to codex's configuration."""
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
        table["default_tools_approval_mode"] = "approve"  # the order names the servers, and there is nobody to ask
    return made


def _put(made: CodexServers, path: Path, variable: str, value: object) -> None:
    if not isinstance(value, str) or made.env.setdefault(variable, value) != value:
        raise InvalidOrder(f"{path}: {variable} must be one text, the same for every MCP server that uses it")
