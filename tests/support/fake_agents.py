"""Agents without processes: runs are files below one folder, so that another process can adopt them.

A run lives from ``start`` until somebody has waited for its end. Who starts a second run of a task while the first is
alive is written to ``overlaps``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kingdom.agents.errors import AlreadyStarted
from kingdom.agents.port import Began, OnEvent, Order, Outcome, Tokens

Script = Callable[[Order, int], Outcome]


def succeed(order: Order, number: int) -> Outcome:
    """The script of a soldier that simply does its work."""
    return success()


def success(summary: str = "Done.", **more: Any) -> Outcome:
    """A success, with more fields of the result document."""
    return Outcome("success", result={"status": "success", "summary": summary, **more}, session_id="session-1")


class FakeRun:
    """A run, as started or adopted."""

    def __init__(self, agents: FakeAgents, run_id: str) -> None:
        self.run_id = run_id
        self.pid: int | None = None
        self._agents = agents
        self._stopped = asyncio.Event()

    async def wait(self) -> Outcome:
        folder = self._agents.folder
        going = asyncio.ensure_future(self._agents.gate.wait())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait([going, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            going.cancel()
            stopped.cancel()
        if not (folder / f"{self.run_id}.ended").exists():
            (folder / f"{self.run_id}.ended").touch()
        return self._agents.outcome(self.run_id)

    async def stop(self, reason: str) -> None:
        self._agents.stopped.append((self.run_id, reason))
        self._agents.note(self.run_id, Outcome("killed", error=reason))
        self._stopped.set()


class FakeAgents:
    """Plays ``script`` for each run: it gets the order and the number of the run for that task, from 1.

    Runs end when ``gate`` is set; it is, unless a test clears it.
    """

    def __init__(self, folder: Path, script: Script = succeed) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.script = script
        self.orders: list[Order] = []
        self.adopted: list[str] = []
        self.stopped: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self, order: Order, on_event: OnEvent | None = None) -> FakeRun:
        if (self.folder / f"{order.run_id}.json").exists():
            raise AlreadyStarted(order.run_id)
        before = self.runs_of(order.task_id)
        if alive := [run for run in before if not (self.folder / f"{run}.ended").exists()]:
            with (self.folder / "overlaps").open("a") as file:
                file.write(f"{order.run_id} started while {alive} lived\n")
        self.orders.append(order)
        outcome = self.script(order, len(before) + 1)
        (self.folder / f"{order.run_id}.task").write_text(order.task_id)
        self.note(order.run_id, outcome)
        if on_event is not None and outcome.session_id:
            on_event(Began(session_id=outcome.session_id))
        return FakeRun(self, order.run_id)

    async def adopt(self, run_id: str, on_event: OnEvent | None = None) -> FakeRun | None:
        if not (self.folder / f"{run_id}.json").exists():
            return None
        self.adopted.append(run_id)
        return FakeRun(self, run_id)

    async def close(self) -> None:
        """There is nothing to let go of."""

    def runs_of(self, task_id: str) -> list[str]:
        """The runs that a task had, the first first."""
        found = [path for path in self.folder.glob("*.task") if path.read_text() == task_id]
        return [path.stem for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)]

    def overlaps(self) -> str:
        """Who was started too early."""
        path = self.folder / "overlaps"
        return path.read_text() if path.exists() else ""

    def note(self, run_id: str, outcome: Outcome) -> None:
        (self.folder / f"{run_id}.json").write_text(json.dumps(dataclasses.asdict(outcome)))

    def outcome(self, run_id: str) -> Outcome:
        fields = json.loads((self.folder / f"{run_id}.json").read_text())
        return Outcome(**{**fields, "tokens": Tokens(**fields["tokens"])})
