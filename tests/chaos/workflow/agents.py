"""The agents of workflows that are alive, found by the mark only they carry."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kingdom.agents.processes import RUN_ID_VARIABLE
from kingdom.workflow.home import WorkflowHome
from tests.support.court_processes import kill


class Agent(NamedTuple):
    """A shim, an agent, or what it started."""

    pid: int
    run: str


def agents_of(home: WorkflowHome) -> list[Agent]:
    """Every process of the runs of a home."""
    known = {f"{RUN_ID_VARIABLE}={name}".encode(): name for name in os.listdir(home.runs)} if home.runs.exists() else {}
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:  # it ended, or is not ours to look at
                continue
            found += [Agent(int(name), known[variable]) for variable in variables if variable in known]
    return found


def kill_runs(agents: Iterable[Agent]) -> set[str]:
    """``kill -9`` of processes; returns the runs that were hit."""
    return {agent.run for agent in agents if kill(agent.pid)}
