"""Where a run's shim is started: as a process of its own session, or in tmux (:mod:`kingdom.agents.tmux`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from kingdom.agents import shim
from kingdom.agents.files import write_json
from kingdom.agents.folder import RunFolder

# Isolated (-I) and without site (-S): what lies in the agent's folder or in PYTHONPATH is never imported, and it starts
# in 20 ms.
SHIM: Final = (sys.executable, "-I", "-S", str(Path(shim.__file__).resolve()))


class Host(Protocol):
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
        write_json(run.spec, {**spec, "env_names": sorted(environment)})
        log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawn(  # noqa: ASYNC221 (a millisecond: it does not wait for the process)
            SHIM[0],
            [*SHIM, str(run.spec)],
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
