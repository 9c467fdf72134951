"""Runs in tmux, to be looked at: the pane shows the transcript as it grows. Everything else is the same.

Killing the tmux session, or the server, stops the run as any SIGHUP does. tmux would put the environment on a command
line that everybody on the machine can read, so it goes through a file (0600) that the shim removes before the agent
starts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any, Final

from kingdom.agents.environment import RUN_ID, inherited
from kingdom.agents.errors import EngineNotInstalled, StartFailed
from kingdom.agents.files import write_json
from kingdom.agents.folder import RunFolder
from kingdom.agents.host import SHIM

_SIZE: Final = ("-x", "200", "-y", "50")


class TmuxHost:
    """Starts each shim in a tmux session with the run's name, on a tmux server of our own."""

    name = "tmux"

    def __init__(self, socket: str = "kingdom") -> None:
        self._socket = socket

    async def start(self, run: RunFolder, spec: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Start the shim of a run in a session that ends with it."""
        tmux = shutil.which("tmux")
        if tmux is None:
            raise EngineNotInstalled("host tmux: there is no tmux on the PATH: install it, or use host: process")
        write_json(run.environment, dict(environment))
        write_json(
            run.spec,
            {**spec, "env_names": sorted(environment), "env_file": str(run.environment), "show": True},
        )
        mark = f"{RUN_ID}={run.run_id}"
        process = await asyncio.create_subprocess_exec(
            *(tmux, "-L", self._socket, "-f", os.devnull, "new-session", "-d", "-s", session_name(run.run_id), *_SIZE),
            *("-c", str(run.path), "-e", mark, "--", *SHIM, str(run.spec)),
            env=inherited(os.environ),  # the server keeps this for all its panes
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise StartFailed(f"tmux could not start run {run.run_id}: {errors.decode(errors='replace').strip()[:500]}")

    def attach_command(self, run_id: str) -> list[str]:
        """How a person watches the run; detach with C-b d."""
        return ["tmux", "-L", self._socket, "attach-session", "-r", "-t", f"={session_name(run_id)}"]


def session_name(run_id: str) -> str:
    """A run id as tmux takes it: it reads ``.`` and ``:`` as parts of a target."""
    return run_id.replace(".", "_").replace(":", "_")
