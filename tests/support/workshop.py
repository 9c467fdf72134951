"""A worktree, a home without any settings and a runner: where real agents do real work in tests."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kingdom.agents.engine import Engine
from kingdom.agents.hosts import AgentHost, TmuxHost
from kingdom.agents.port import AgentEvent, Order, Outcome, SandboxMode, Timers
from kingdom.agents.runner import Runner
from kingdom.agents.sandbox.sandbox import Sandbox
from tests.support.orders import make_order
from tests.support.repositories import plain_git

# Nothing but loopback is reached: everything else goes to a proxy that is not there.
NO_NETWORK = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
SOMEBODY = {
    "GIT_AUTHOR_NAME": "A Soldier",
    "GIT_AUTHOR_EMAIL": "soldier@example.com",
    "GIT_COMMITTER_NAME": "A Soldier",
    "GIT_COMMITTER_EMAIL": "soldier@example.com",
}
ECHO = Path(__file__).with_name("mcp_echo.py")
_TIMERS = Timers(first_output=60, silence=60, total=60, after_result=5, stop=1)


class Workshop:
    """Runs orders of one engine in ``folder/repo``, a worktree of ``folder/clone``."""

    sandbox: ClassVar[SandboxMode] = "off"
    host: ClassVar[AgentHost | None] = None

    def __init__(self, folder: Path, engine: Engine, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.engine = engine
        self.cwd = folder / "repo"
        self.clone = folder / "clone"
        self.result_path = folder / "result" / "result.json"
        self.events: list[AgentEvent] = []
        self.refusals: list[str] = []
        self.home = folder / "home"
        self.home.mkdir()
        self._env = {**NO_NETWORK, **SOMEBODY, "HOME": str(self.home), **env}
        self.clone.mkdir()
        plain_git(self.clone, "init", "--quiet", "--initial-branch=main")
        plain_git(self.clone, "commit", "--quiet", "--allow-empty", "-m", "first")
        plain_git(self.clone, "worktree", "add", "--quiet", "-b", "work", str(self.cwd))

    def order(self, **changes: Any) -> Order:
        """An order for this place; ``env`` is added to what every order here gets."""
        values = {"result_path": self.result_path, "timers": _TIMERS, "model": "scripted-model", **changes}
        values["env"] = {**self._env, **changes.get("env", {})}
        return make_order(self.folder, self.engine.name, **values)

    async def run(self, order: Order) -> Outcome:
        """Have an order done and wait for its end. What it says is in ``events``."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        runner = Runner(
            soldiers=self.folder / "soldiers",
            sessions=self.folder / "sessions",
            ledger=self.folder / "ledger",
            engines={self.engine.name: self.engine},
            environ=environ,
            sandbox=Sandbox(self.sandbox, read=[ECHO]),
            host=self.host,
            on_refusal=lambda _, what: self.refusals.append(what),
        )
        try:
            self.events = []
            running = await runner.start(order, self.events.append)
            return await running.wait()
        finally:
            await runner.close()

    def mcp_config(self) -> Path:
        """A configuration with one MCP server, ``echo``, which is given a token."""
        server = {"command": sys.executable, "args": [str(ECHO)], "env": {"ECHO_TOKEN": "t0ken"}}
        path = self.folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"echo": server}}))
        return path

    def log(self) -> list[str]:
        """The subjects of the commits in the worktree, newest first."""
        return plain_git(self.cwd, "log", "--format=%s").splitlines()

    def transcript(self, order: Order) -> str:
        """What a run printed."""
        return (self.folder / "sessions" / f"{order.run_id}.json").read_text()


PLACES = ("required", *(pytest.param(place, marks=pytest.mark.walk) for place in ("off", "tmux")))
"""Where the tests of a real agent run: confined; in ``make walks`` also not confined, and confined in tmux."""


def put(place: str, patch: pytest.MonkeyPatch) -> str:
    """Have all workshops be in one of these places, and return the mode of their sandbox."""
    if place == "tmux":
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed (scripts/system-packages)")
        patch.setattr(Workshop, "host", TmuxHost(f"kingdom-test-{os.getpid()}"))
    mode = "off" if place == "off" else "required"
    patch.setattr(Workshop, "sandbox", mode)
    return mode


def result_text(status: str, **more: Any) -> str:
    """A result file as an agent writes it."""
    return json.dumps({"status": status, "summary": "Did what I could.", **more})


def alive(run_id: str) -> list[int]:
    """The processes that carry the mark of a run."""
    mark = f"KINGDOM_RUN_ID={run_id}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue  # gone meanwhile, or not ours to see
    return found
