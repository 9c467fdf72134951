"""The files that say which MCP servers a run has, with the secrets these need: for us alone, and only while it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kingdom.agents.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


class McpFiles:
    """The files in a folder, one for each run that needs one (:attr:`kingdom.agents.port.Order.mcp_config`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def write(self, run_id: str, servers: Mapping[str, Mapping[str, Any]]) -> Path | None:
        """The file for a run; None when there is no server to tell of."""
        if not servers:
            return None
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(run_id)
        write_atomic(path, json.dumps({"mcpServers": servers}).encode())
        return path

    def remove(self, run_id: str) -> None:
        """Remove the file of a run, if it has one."""
        self._path(run_id).unlink(missing_ok=True)

    def sweep(self, keep: Collection[str]) -> None:
        """Remove what a killed process left, but for the files of these runs."""
        kept = {self._path(run_id) for run_id in keep}
        for path in self._folder.glob("*") if self._folder.is_dir() else ():
            if path not in kept:
                path.unlink(missing_ok=True)

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"
