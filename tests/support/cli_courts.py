"""A court whose soldiers are the real agent command lines, talking to scripted models on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.home import MARKER, Home
from kingdom.court.loop import Services, run_role
from tests.support.agent_clis import installed
from tests.support.courts import PATIENCE
from tests.support.model_servers import MessagesServer, Refuse, ResponsesServer, Turn, Use
from tests.support.model_servers.server import ModelServer
from tests.support.repositories import Remote
from tests.support.workshop import ECHO, NO_NETWORK, SOMEBODY

GENERAL = "gen-test"
EVENT = "evt-test-1"
PROMPT = "{% if resume %}Go on.{% else %}Do this:\n{{ data }}{% endif %}\n{{ report }}"


class Cli:
    """An agent command line, the model it talks to, and how that model has it do things."""

    engine: str
    profile: str
    env: tuple[str, ...] = ()  # names that its general passes on
    tries_again = False  # whether it repeats a request that failed, as it does for people

    def __init__(self, program: str, server: ModelServer) -> None:
        self.program = program
        self.server = server

    def variables(self, home: Path) -> dict[str, str]:
        """What the environment of the court has for it."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Its section in ``system.yaml``."""
        return {"path": self.program}

    def runs(self, command: str) -> Turn:
        """Have it run a command."""
        raise NotImplementedError

    def writes(self, path: Path, text: str) -> Turn:
        """Have it write a file."""
        raise NotImplementedError

    def calls(self, server: str, tool: str, **arguments: Any) -> Turn:
        """Have it use a tool of an MCP server."""
        raise NotImplementedError

    def refuses(self, resets_at: int) -> Refuse:
        """The service says that the account is over its limit until then."""
        raise NotImplementedError

    def told(self) -> str:
        """The conversation as the model saw it last."""
        raise NotImplementedError


class Claude(Cli):
    """Claude Code, which may edit."""

    engine = "claude"
    profile = "edit"

    def variables(self, home: Path) -> dict[str, str]:
        """Where its model is; an account by token, since only such a one is told when a limit ends."""
        return {
            "ANTHROPIC_BASE_URL": self.server.url,
            "CLAUDE_CODE_OAUTH_TOKEN": "x",
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        }

    def settings(self) -> dict[str, Any]:
        """The program, and how often it repeats a request."""
        return {**super().settings(), "env": {} if self.tries_again else {"CLAUDE_CODE_MAX_RETRIES": "0"}}

    def runs(self, command: str) -> Turn:
        """By its tool for that."""
        return Use.tool("Bash", command=command, description="Work")

    def writes(self, path: Path, text: str) -> Turn:
        """By its tool for that."""
        return Use.tool("Write", file_path=str(path), content=text)

    def calls(self, server: str, tool: str, **arguments: Any) -> Turn:
        """By the name it makes of both."""
        return Use.tool(f"mcp__{server}__{tool}", **arguments)

    def refuses(self, resets_at: int) -> Refuse:
        """By the headers it knows of a window that is spent."""
        headers = {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": str(resets_at),
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
        }
        error = {"type": "error", "error": {"type": "rate_limit_error", "message": "Over the limit."}}
        return Refuse(429, error, headers)

    def told(self) -> str:
        """All messages."""
        return json.dumps(self.server.requests[-1]["messages"])


class Codex(Cli):
    """Codex without its sandbox, which not every system lets it make."""

    engine = "codex"
    profile = "full"
    env = ("OUR_KEY",)

    def variables(self, home: Path) -> dict[str, str]:
        """A home of its own, which must be there."""
        (home / ".codex").mkdir()
        return {"OUR_KEY": "x", "CODEX_HOME": str(home / ".codex")}

    def settings(self) -> dict[str, Any]:
        """Where its model is, and how often it repeats a request."""
        provider = f'{{name="ours",base_url="{self.server.url}/v1",env_key="OUR_KEY",wire_api="responses"'
        provider += "}" if self.tries_again else ",request_max_retries=0,stream_max_retries=0}"
        args = ["-c", 'model_provider="ours"', "-c", f"model_providers.ours={provider}"]
        return {**super().settings(), "args": args}

    def runs(self, command: str) -> Turn:
        """By its tool for that."""
        return Use.tool("exec_command", cmd=command)

    def writes(self, path: Path, text: str) -> Turn:
        """By the shell."""
        return self.runs(f"printf %s {quote(text)} > {path}")

    def calls(self, server: str, tool: str, **arguments: Any) -> Turn:
        """By a namespace for each server."""
        return Use.tool(f"mcp__{server}/{tool}", **arguments)

    def refuses(self, resets_at: int) -> Refuse:
        """By the error it knows of a plan that is used up."""
        error = {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": resets_at, "message": "Over."}
        return Refuse(429, {"error": error})

    def told(self) -> str:
        """All items of the input."""
        return json.dumps(self.server.requests[-1]["input"])


@contextlib.contextmanager
def talking(engine: str) -> Iterator[Cli]:
    """A command line with its model at work; the test is skipped where it is not installed."""
    programs = installed()
    if engine == "claude":
        with MessagesServer() as messages:
            yield Claude(programs.claude, messages)
    else:
        with ResponsesServer() as responses:
            yield Codex(programs.codex, responses)


class CliCourt:
    """A home with one general, whose soldiers are a command line; king and general run in this process."""

    def __init__(self, root: Path, cli: Cli, patch: pytest.MonkeyPatch, **manifest: Any) -> None:
        self.cli = cli
        self.home = Home(root / "home")
        self.remote = Remote(root / "hub" / "acme" / "shop")
        self.remote.commit({"README.md": "A shop.\n"})
        self._roles: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._services: Services | None = None
        self._configure(root / "hub", manifest)
        users = root / "user"
        users.mkdir()
        for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE", "OPENAI_", "CODEX_"))]:
            patch.delenv(name)
        for name, value in {**NO_NETWORK, **SOMEBODY, **cli.variables(users), "HOME": str(users)}.items():
            patch.setenv(name, value)
        patch.setattr("kingdom.court.general.task_run._BACKOFF_SECONDS", (0.01, 0.01))

    def _configure(self, hub: Path, manifest: dict[str, Any]) -> None:
        folder = self.home.general(GENERAL)
        folder.mkdir(parents=True)
        system = {
            "repos": {"base_url": str(hub)},
            "engines": {self.cli.engine: self.cli.settings()},
            "sandbox": {"mode": "required", "read": [str(ECHO)]},
        }
        (self.home.root / MARKER).write_text(json.dumps(system))
        (folder / "prompt.md").write_text(PROMPT)
        usual = {
            "name": GENERAL,
            "description": "For tests.",
            "engine": {"name": self.cli.engine, "model": "scripted-model"},
            "profile": self.cli.profile,
            "subscribes": ["*"],
            "env": [*SOMEBODY, *self.cli.env],
            "timers": {"first_output": 60, "silence": 60},
            "timeout_seconds": 60,
        }
        (folder / "manifest.yaml").write_text(json.dumps({**usual, **manifest}))

    def confine(self, mode: str) -> None:
        """Set the mode of the sandbox."""
        path = self.home.root / MARKER
        system = json.loads(path.read_text())
        path.write_text(json.dumps({**system, "sandbox": {**system["sandbox"], "mode": mode}}))

    # ── running it ────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Services]:
        """The court at work."""
        async with open_services(self.home) as services:
            self._services = services
            self.start("king")
            self.start(GENERAL)
            try:
                yield services
            finally:
                for name in list(self._roles):
                    await self.stop(name)

    def start(self, name: str) -> None:
        """Put a role to work, as a new process of it would."""
        assert self._services is not None
        stop = asyncio.Event()
        role = make_role(name, self._services)
        self._roles[name] = (asyncio.create_task(run_role(role, self._services, stop)), stop)

    async def stop(self, name: str) -> None:
        """Stop a role; what its soldiers do goes on."""
        running, stop = self._roles.pop(name)
        stop.set()
        await running

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until something has happened."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := condition():
                return found
            for task, _ in self._roles.values():
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)
        raise AssertionError(f"waited in vain for: {what}")

    # ── what lies there ───────────────────────────────────────────────────────────────────────────────────────────

    def drop(self, kind: str = "test.happened", event_id: str = EVENT, /, **payload: Any) -> None:
        """Put an event in by hand: a file."""
        event = {
            "id": event_id,
            "type": kind,
            "source": "test",
            "repo": "acme/shop",
            "payload": payload,
            "created_at": "2026-09-21T12:00:00Z",
        }
        path = self.home.queue / "events" / "pending" / f"{event_id}.json"
        path.with_name(".tmp-by-hand").write_text(json.dumps(event))
        path.with_name(".tmp-by-hand").rename(path)

    def documents(self, where: str) -> list[dict[str, Any]]:
        """The documents in a folder of the queues, as ``tasks/completed``."""
        return [json.loads(path.read_text()) for path in sorted((self.home.queue / where).glob("*.json"))]

    def leaves(self, status: str, **more: Any) -> Callable[[], Turn]:
        """Have the soldier leave its result where it was told to."""

        def turn() -> Turn:
            (folder,) = (self.home.workspace / ".handover").iterdir()
            document = {"status": status, "summary": "Did what I could.", **more}
            return self.cli.writes(folder / "result.json", json.dumps(document))

        return turn

    def results(self) -> list[dict[str, Any]]:
        """What the general reported, in order."""
        paths = sorted(path for path in self.home.results.glob("task-*.json") if not path.stem.endswith("-raw"))
        return [json.loads(path.read_text()) for path in paths]

    def soldiers(self) -> list[str]:
        """Everybody who was ever started."""
        return sorted(path.name for path in self.home.soldiers.iterdir()) if self.home.soldiers.is_dir() else []

    def ledger(self) -> list[dict[str, Any]]:
        """What was used, a line for each run."""
        return [json.loads(line) for path in self.home.ledger.glob("*.jsonl") for line in path.read_text().splitlines()]

    def told(self, *kinds: str) -> Sequence[dict[str, Any]]:
        """What the journal says of these kinds."""
        lines = self.home.journal.read_text().splitlines() if self.home.journal.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["type"] in kinds]
