"""Orders for agents, and recordings of what the real command lines print."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from kingdom.agents.engine import LineReader
from kingdom.agents.port import AgentEvent, Order

RECORDINGS = Path(__file__).parent / "agent_recordings"


def run_id() -> str:
    """A run id that no other test on this machine has: what is left of a run is found by it."""
    return f"soldier-{uuid.uuid4().hex}"


def make_order(folder: Path, engine: str, **changes: Any) -> Order:
    """An order to work in ``folder/repo``, with its result in ``folder/result``."""
    values: dict[str, Any] = {
        "run_id": run_id(),
        "task_id": "task-20260101-001",
        "engine": engine,
        "prompt": "Write hello into notes.txt.",
        "cwd": folder / "repo",
        "result_path": folder / "result" / "result.json",
        **changes,
    }
    values["cwd"].mkdir(parents=True, exist_ok=True)
    return Order(**values)


def recorded(name: str) -> list[bytes]:
    """The lines of a recording."""
    return (RECORDINGS / name).read_bytes().splitlines(keepends=True)


def read_all(reader: LineReader, lines: list[bytes]) -> list[AgentEvent]:
    """What all the lines say."""
    return [event for line in lines for event in reader.feed(line)]
