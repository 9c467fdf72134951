"""Start the shim of a run: as a process in its own session, or in tmux.

In tmux, the pane shows the transcript as it grows; everything else is the same. Killing the tmux session or server
stops the run, as any SIGHUP does. tmux would put the environment on a command line, which every user of the machine can
read. So it goes through a file (0600) that the shim removes before the agent starts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from kingdom.agents.engine import RUN_ID_VARIABLE, inherited_environment
from kingdom.agents.errors import EngineNotInstalled, StartFailed
from kingdom.agents.folder import RunFolder

_PACKAGES: Final = str(Path(__file__).resolve().parents[2])
# Isolated (-I) and without site (-S): it imports nothing from the agent's folder or PYTHONPATH, and starts quickly.
# Imported, not run by path: Python would compile it at each start, for a quarter of the time.
_START_SHIM: Final = (
    f"import sys; sys.path.append({_PACKAGES!r}); from kingdom.agents.shim import main; sys.exit(main())"
)
SHIM_COMMAND: Final = (sys.executable, "-I", "-S", "-c", _START_SHIM)


class AgentHost(Protocol):
    """Starts shims."""

    name: str

    async def start(self, run: RunFolder, spec: Mapping[str, Any], environment: Mapping[str, str]) -> int | None:
        """Start the shim of a run. Returns its pid if it is our child, which must be waited for."""

    def attach_command(self, run_id: str) -> list[str] | None:
        """Return the command with which a person watches the run; None if that is not possible."""


class ProcessHost:
    """Starts the shim as a child in a session of its own, so that it outlives us.

    The environment is passed in memory; its values are never on disk.
    """

    name = "process"

    async def start(self, run: RunFolder, spec: Mapping[str, Any], environment: Mapping[str, str]) -> int:
        """Start the shim of a run, and return its pid."""
        run.write(run.spec, {**spec, "env_names": sorted(environment)})
        log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawn(  # noqa: ASYNC221 - takes a millisecond: it does not wait for the process
            SHIM_COMMAND[0],
            [*SHIM_COMMAND, str(run.spec)],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(run.log), log, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=sys.platform == "linux",  # elsewhere the shim does it
        )

    def attach_command(self, run_id: str) -> None:
        """Return None: there is no terminal. Follow the transcript instead."""


_SIZE: Final = ("-x", "200", "-y", "50")


class TmuxHost:
    """Starts each shim in a tmux session named after the run, on a tmux server of our own."""

    name = "tmux"

    def __init__(self, socket: str = "kingdom") -> None:
        self._socket = socket

    async def start(self, run: RunFolder, spec: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Start the shim of a run in a session that ends with the shim."""
        tmux = shutil.which("tmux")
        if tmux is None:
            raise EngineNotInstalled("host tmux: tmux is not on the PATH: install it, or use host: process")
        run.write(run.environment, dict(environment))
        run.write(
            run.spec,
            {**spec, "env_names": sorted(environment), "env_file": str(run.environment), "show": True},
        )
        mark = f"{RUN_ID_VARIABLE}={run.run_id}"
        process = await asyncio.create_subprocess_exec(
            *(tmux, "-L", self._socket, "-f", os.devnull, "new-session", "-d", "-s", session_name(run.run_id), *_SIZE),
            *("-c", str(run.path), "-e", mark, "--", *SHIM_COMMAND, str(run.spec)),
            env=inherited_environment(os.environ),  # the tmux server keeps it for all its panes
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise StartFailed(f"tmux could not start run {run.run_id}: {errors.decode(errors='replace').strip()[:500]}")

    def attach_command(self, run_id: str) -> list[str]:
        """Return the command with which a person watches the run; C-b d detaches."""
        return ["tmux", "-L", self._socket, "attach-session", "-r", "-t", f"={session_name(run_id)}"]


def session_name(run_id: str) -> str:
    """Return a run id as a tmux session name, in which ``.`` and ``:`` are not allowed."""
    return run_id.replace(".", "_").replace(":", "_")
