"""A chamberlain under a clock that the test sets, with resources and soldiers that the test makes up."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kingdom.base.yamlfile import parse_yaml
from kingdom.bus import connect
from kingdom.court.chamberlain import Chamberlain
from kingdom.court.chamberlain.sessions import SoldierProcess
from kingdom.court.config import SystemConfig
from kingdom.court.home import Home
from kingdom.court.loop import Services
from kingdom.court.models import timestamp
from kingdom.court.queues import MAX_DOCUMENT_BYTES, declare_queues
from kingdom.journal import Journal, Reader

START = 1_770_458_400.0  # 2026-02-07 10:00:00 UTC


def here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a ``kingdom`` command in this process, where starting one for each would only take time."""
    from kingdom.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def here_json(*arguments: str) -> Any:
    """The JSON document of a command that must succeed."""
    done = here(*arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@dataclass
class Machine:
    """Resources as the test says."""

    cpu: float = 10.0
    memory: float = 10.0
    disk: float = 10.0

    def read(self) -> dict[str, float]:
        return {"cpu_percent": self.cpu, "memory_percent": self.memory, "disk_percent": self.disk}


@dataclass
class FakeBarracks:
    """Soldiers without processes."""

    found: dict[str, SoldierProcess] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)

    def add(self, name: str, started_at: float, *, running: bool = True, ended: bool = False) -> None:
        self.found[name] = SoldierProcess(name, 4711, started_at, running, ended, {})

    def soldiers(self) -> list[SoldierProcess]:
        return list(self.found.values())

    def stop(self, soldier: SoldierProcess) -> None:
        self.stopped.append(soldier.id)

    def kill(self, soldier: SoldierProcess) -> int:
        self.killed.append(soldier.id)
        return 1


class Watched:
    """A home with a chamberlain that can be started again and again."""

    def __init__(self, root: Path, system: str = "") -> None:
        self.home = Home(root)
        for folder in (self.home.config, self.home.logs, self.home.queue, self.home.state):
            folder.mkdir(parents=True, exist_ok=True)
        self.now = START
        self.system = parse_yaml(system, SystemConfig, "system.yaml")
        self.machine = Machine()
        self.barracks = FakeBarracks()
        self.journal = Journal(self.home.journal, self.clock)
        self.chamberlain: Chamberlain
        self.services: Services

    def clock(self) -> float:
        return self.now

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Watched]:
        """Open the queues, and start the chamberlain."""
        async with connect(self.home.queue_url, clock=self.clock, max_bytes=MAX_DOCUMENT_BYTES) as bus:
            await declare_queues(bus)
            self.services = Services(self.home, bus, self.journal, self.clock)
            await self.restart()
            yield self
            await self.chamberlain.stop()
        self.journal.close()

    async def restart(self) -> None:
        """A new chamberlain, as after a crash: the old one says no goodbye."""
        self.chamberlain = Chamberlain(self.services, self.system, resources=self.machine, processes=self.barracks)
        await self.chamberlain.start()

    async def tick(self, seconds: float = 0.0) -> None:
        """Let time pass, and have a look."""
        self.now += seconds
        while await self.chamberlain.tick() == 0.0:
            pass

    def configure(self, text: str) -> None:
        """Write ``config/chamberlain.yaml``."""
        (self.home.config / "chamberlain.yaml").write_text(text)

    def emit(self, kind: str, actor: str, **data: Any) -> None:
        """Something happens in the court."""
        self.journal.emit(kind, actor, data)

    def beat(self, role: str, pid: int = 100) -> None:
        """A role gives a sign of life."""
        path = self.home.heartbeat(role)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"ts": timestamp(self.now), "pid": pid}))

    def spend(self, cost: float, tokens: int = 0, general: str = "gen-pr") -> None:
        """A run ends and is written into the ledger."""
        self.home.ledger.mkdir(parents=True, exist_ok=True)
        ts = timestamp(self.now)
        line = {"ts": ts, "run_id": os.urandom(6).hex(), "general": general, "cost_usd": cost}
        with (self.home.ledger / f"{ts[:7]}.jsonl").open("a") as file:
            file.write(json.dumps({**line, "tokens": {"total": tokens}}) + "\n")

    def old(self, path: str, days: float, content: str = "x") -> Path:
        """A file below the home that was written so many days ago."""
        made = self.home.root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(content)
        os.utime(made, (self.now - days * 86400,) * 2)
        return made

    def events(self, *types: str) -> list[dict[str, Any]]:
        """The data of the journal's events of these types, in order."""
        with Reader(self.home.journal) as reader:
            return [{"type": entry.type, **entry.fields} for entry in reader.read() if entry.type in types]

    def messages(self) -> list[dict[str, Any]]:
        """Every message there is in the queue, in the order of their ids."""
        folder = self.home.queue / "messages"
        found = [json.loads(path.read_text()) for path in folder.glob("*/msg-*.json")]
        return sorted(found, key=lambda message: (message["id"][:12], int(message["id"].rpartition("-")[2])))

    def alerts(self) -> list[tuple[str, str]]:
        """Of each alert in the queue, what it is about and how that stands."""
        contexts = [message["context"] for message in self.messages() if "alert" in message["context"]]
        return [(context["alert"], context["state"]) for context in contexts]

    def health(self) -> str:
        """What ``health.json`` says."""
        return str(json.loads((self.home.role("chamberlain") / "health.json").read_text())["level"])
