"""A confined place for hostile agents: a worktree of a clone, beside the worktree of somebody else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.port import Order, Outcome, Timers
from kingdom.agents.runner import Runner
from kingdom.agents.sandbox.sandbox import Sandbox
from tests.support.repositories import plain_git
from tests.support.workshop import alive


class Cell:
    """Runs commands confined in a worktree of a clone, beside the worktree of somebody else."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clone = root / "clones" / "repo"
        self.cwd = root / "worktrees" / "w1" / "app"
        self.other = root / "worktrees" / "w2" / "app"
        self.clone.mkdir(parents=True)
        plain_git(self.clone, "init", "--quiet", "--initial-branch=main")
        (self.clone / "code.py").write_text("print(1)\n")
        plain_git(self.clone, "add", ".")
        plain_git(self.clone, "commit", "--quiet", "-m", "first")
        for name, path in (("w1", self.cwd), ("w2", self.other)):
            plain_git(self.clone, "worktree", "add", "--quiet", "-b", f"kingdom/{name}/app", str(path))
        self.engine: CommandEngine = CommandEngine()
        self.refusals: list[tuple[str, str]] = []
        self.limits: dict[str, int] = {}
        self.number = 0

    @property
    def git(self) -> Path:
        return self.clone / ".git"

    def runner(self) -> Runner:
        return Runner(
            soldiers=self.root / "soldiers",
            sessions=self.root / "sessions",
            ledger=self.root / "ledger",
            engines={"command": self.engine},
            sandbox=Sandbox("required", limits=self.limits),
            on_refusal=lambda order, what: self.refusals.append((order.task_id, what)),
        )

    def order(self, script: str, **changes: Any) -> Order:
        self.number += 1
        values: dict[str, Any] = {
            "run_id": f"run-{os.getpid()}-{self.root.name}-{self.number}",
            "task_id": "task-20260101-001",
            "engine": "command",
            "prompt": "",
            "cwd": self.cwd,
            "result_path": self.root / "handover" / "result.json",
            "options": {"argv": ["bash", "-c", script]},
            "timers": Timers(first_output=60, silence=60, total=60, stop=0.5),
            **changes,
        }
        return Order(**values)

    async def run(self, script: str, **changes: Any) -> tuple[Outcome, str]:
        """Run a script to its end. Returns its outcome and all it printed."""
        runner = self.runner()
        try:
            order = self.order(script, **changes)
            outcome = await (await runner.start(order)).wait()
        finally:
            await runner.close()
        assert alive(order.run_id) == []
        output = [self.root / "sessions" / f"{order.run_id}.{kind}" for kind in ("json", "err")]
        return outcome, "".join(path.read_text() for path in output)
