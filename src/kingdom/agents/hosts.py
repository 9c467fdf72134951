"""Where the shim of a run is started: as a process of its own session, or in tmux."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from kingdom.agents import shim
from kingdom.agents.engine import RUN_ID_VARIABLE, inherited_environment
from kingdom.agents.errors import EngineNotInstalled, StartFailed
from kingdom.agents.folder import RunFolder

# Where a run's shim is started: as a process of its own session, or in tmux (:mod:`kingdom.agents.hosts`).


# Isolated (-I) and without site (-S): what lies in the agent's folder or in PYTHONPATH is never imported, and it starts
# in 20 ms.
SHIM_COMMAND: Final = (sys.executable, "-I", "-S", str(Path(shim.__file__).resolve()))


class AgentHost(Protocol):
    """Starts shims."""

    name: str

    async def start(self, run: RunFolder, spec: Mapping[str, Any], environment: Mapping[str, str]) -> int | None:
        """Start the shim of a run. Returns its pid when it is our child, to be waited for."""

    def attach_command(self, run_id: str) -> list[str] | None:
        """How a person watches the run, where that is possible."""


class ProcessHost:
    """Starts the shim as a child in a session of its own, so that it outlives us.

    The environment goes from memory to memory: its values are never on disk.
    """

    name = "process"

    async def start(self, run: RunFolder, spec: Mapping[str, Any], environment: Mapping[str, str]) -> int:
        """Start the shim of a run; returns its pid."""
        run.write(run.spec, {**spec, "env_names": sorted(environment)})
        log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawn(  # noqa: ASYNC221 (a millisecond: it does not wait for the process)
            SHIM_COMMAND[0],
            [*SHIM_COMMAND, str(run.spec)],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(run.log), log, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=sys.platform == "linux",  # elsewhere it does so itself
        )

    def attach_command(self, run_id: str) -> None:
        """There is no terminal to attach to: follow the transcript."""


# Runs in tmux, to be looked at: the pane shows the transcript as it grows. Everything else is the same.
#
# Killing the tmux session, or the server, stops the run as any SIGHUP does. tmux would put the environment on a command
# line that everybody on the machine can read, so it goes through a file (0600) that the shim removes before the agent
# starts.


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
        run.write(run.environment, dict(environment))
        run.write(
            run.spec,
            {**spec, "env_names": sorted(environment), "env_file": str(run.environment), "show": True},
        )
        mark = f"{RUN_ID_VARIABLE}={run.run_id}"
        process = await asyncio.create_subprocess_exec(
            *(tmux, "-L", self._socket, "-f", os.devnull, "new-session", "-d", "-s", session_name(run.run_id), *_SIZE),
            *("-c", str(run.path), "-e", mark, "--", *SHIM_COMMAND, str(run.spec)),
            env=inherited_environment(os.environ),  # the server keeps this for all its panes
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
