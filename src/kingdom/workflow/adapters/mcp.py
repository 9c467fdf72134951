"""The MCP servers of a Work, as its agent is given them.

Servers are named by references of the template, the workflow and the Work; what is set on a later level counts.
Values may be references, ``${NAME}``: they are looked up in the environment when a run starts, and stand in one file
only, which nobody else can read (0600) and which is removed when the run has ended. They are stored nowhere.

A server with a URL is given its ``env`` as headers: ``{"Authorization": "Bearer ${TOKEN}"}``.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents import mcp_files
from kingdom.workflow.domain.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kingdom.workflow.domain.sources import McpServer, McpServerRef

Servers = dict[str, dict[str, Any]]  # by name, references not yet looked up
_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")


class McpInvalid(WorkflowError):
    """MCP servers that cannot be given to an agent."""

    code = "MCP_INVALID"


def merge_servers(registered: Mapping[str, McpServer], *levels: Iterable[McpServerRef]) -> Servers:
    """The servers that these levels name, the weakest level first. Raises :class:`McpInvalid`."""
    env: dict[str, dict[str, str]] = {}
    for level in levels:
        for ref in level:
            if ref.mcp_server_id not in registered:
                raise McpInvalid(
                    f"the MCP server {ref.mcp_server_id} is not registered (any more): register it again, "
                    "or take it out of the workflow"
                )
            env.setdefault(ref.mcp_server_id, {}).update(ref.env)
    merged: Servers = {}
    for server_id, overrides in env.items():
        server = registered[server_id]
        name = _OTHER.sub("-", server.name)[:64]
        if not name or name in merged:
            raise McpInvalid(f"the MCP server {server.name!r} ({server_id}) needs a name that no other has here")
        merged[name] = _described(server, {**server.env, **overrides})
    return merged


def resolve_servers(servers: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]) -> Servers:
    """The same with every reference replaced. Raises :class:`McpInvalid` for one that leads nowhere."""
    return {name: _resolved(server, name, environ) for name, server in servers.items()}


class McpFiles(mcp_files.McpFiles):
    """The files that agents are given, one for each run that needs one."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._environ = environ

    def check(self, servers: Servers) -> None:
        """Raise :class:`McpInvalid` when a reference leads nowhere, or a program is not there."""
        for name, server in resolve_servers(servers, self._environ).items():
            program = server.get("command")
            relative = program and os.sep in program and not program.startswith(os.sep)
            if program and not relative and shutil.which(program, path=self._environ.get("PATH")) is None:
                raise McpInvalid(f"the MCP server {name} cannot start: there is no program {program!r} on the PATH")

    def write(self, run_id: str, servers: Mapping[str, Mapping[str, Any]]) -> Path | None:
        """The file for a run, with references replaced; None when there is no server to tell of."""
        return super().write(run_id, resolve_servers(servers, self._environ))


def _described(server: McpServer, env: dict[str, str]) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": env}
    if not server.command:
        raise McpInvalid(f"the MCP server {server.name!r} ({server.id}) has neither a command nor a URL")
    return {"command": server.command[0], "args": list(server.command[1:]), "env": env}


def _resolved(value: Any, server: str, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(item, server, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, server, environ) for item in value]

    def look_up(match: re.Match[str]) -> str:
        name = match[1]
        if not _NAME.match(name):
            raise McpInvalid(f"the MCP server {server} refers to {match[0]!r:.80}: a reference is ${{NAME}}")
        if name not in environ:
            raise McpInvalid(
                f"the MCP server {server} needs the variable {name}, and the environment has none: set it and resume"
            )
        return environ[name]

    return _REFERENCE.sub(look_up, value) if isinstance(value, str) else value
