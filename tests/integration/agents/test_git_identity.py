"""The name under which agents commit, confined or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from kingdom.agents.runner import Runner
from kingdom.agents.sandbox.sandbox import Sandbox
from tests.support.cells import Cell
from tests.support.repositories import plain_git

Mode = Literal["off", "required"]
MODES = pytest.mark.parametrize("mode", ["off", "required"])
JANE = "[user]\n\tname = Jane\n\temail = jane@example.com\n"


class Machine(Cell):
    """A machine whose user has the git settings ``settings``, and nothing else."""

    def __init__(self, root: Path, mode: Mode, settings: str = "", configured: dict[str, str] | None = None) -> None:
        super().__init__(root)
        self.mode, self.configured = mode, configured
        self.user = root / "user"
        self.user.mkdir()
        (self.user / ".gitconfig").write_text(settings)

    def runner(self) -> Runner:
        return Runner(
            soldiers=self.root / "soldiers",
            sessions=self.root / "sessions",
            ledger=self.root / "ledger",
            engines={"command": self.engine},
            environ={"PATH": os.environ["PATH"], "HOME": str(self.user)},
            sandbox=Sandbox(self.mode),
            git_identity=self.configured,
        )

    async def committed(self) -> str:
        """Who commits when an agent does."""
        outcome, said = await self.run("git commit -q --allow-empty -m Mine")
        assert outcome.status == "success", said
        return plain_git(self.cwd, "log", "-1", "--format=%an <%ae>, %cn <%ce>: %s")


@MODES
async def test_an_agent_can_commit_on_a_fresh_machine(tmp_path: Path, mode: Mode) -> None:
    by = await Machine(tmp_path, mode).committed()
    assert by == "Kingdom <kingdom@localhost>, Kingdom <kingdom@localhost>: Mine"


@MODES
async def test_an_agent_commits_under_the_configured_name(tmp_path: Path, mode: Mode) -> None:
    configured = {"user.name": "Builder", "user.email": "builder@example.com"}
    by = await Machine(tmp_path, mode, JANE, configured).committed()
    assert by == "Builder <builder@example.com>, Builder <builder@example.com>: Mine"


@MODES
async def test_without_a_configured_name_an_agent_commits_as_the_user(tmp_path: Path, mode: Mode) -> None:
    by = await Machine(tmp_path, mode, JANE).committed()
    assert by == "Jane <jane@example.com>, Jane <jane@example.com>: Mine"
