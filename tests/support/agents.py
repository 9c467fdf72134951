"""Runs of agents for tests: a place for them, an engine whose lines say what they mean, and who is still alive."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kingdom.agents.engine import Engine, Examined, Launch, Player
from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import ScriptedEngine
from kingdom.agents.port import AgentEvent, Began, Finished, Order, RateLimit, Text, Timers, Tokens, Usage
from kingdom.agents.processes import bearing, look_at_all
from kingdom.agents.runner import Runner
from kingdom.agents.strays import writes

PATIENT = Timers(first_output=30, silence=30, total=60, after_result=10, stop=0.3)


class TellingEngine:
    """A program whose lines are JSON objects of one key: ``{"finished": {"ok": true}}``."""

    name = "telling"

    def launch(self, order: Order) -> Launch:
        return Launch((sys.executable, "-I", "-S", str(order.options["program"])), stdin=order.prompt.encode())

    def reader(self, order: Order) -> TellingReader:
        return TellingReader()

    async def examine(self) -> Examined:
        return Examined(ok=True)


class TellingReader:
    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        try:
            ((word, data),) = json.loads(line).items()
        except (ValueError, AttributeError):
            return ()
        match word:
            case "began":
                return (Began(**data),)
            case "text":
                return (Text(data),)
            case "usage":
                return (Usage(Tokens(**data["tokens"]), data.get("cost_usd"), data.get("turns", 0)),)
            case "rate":
                return (RateLimit(**data),)
            case "finished":
                return (Finished(**data),)
        return ()


class Barracks:
    """Where the runs of one test live."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cwd = root / "work"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.soldiers = root / "soldiers"
        self.sessions = root / "sessions"
        self.ledger = root / "ledger"
        self.result = root / "results" / "task-raw.json"
        self.engines: dict[str, Engine | Player] = {
            "telling": TellingEngine(),
            "command": CommandEngine(),
            "scripted": ScriptedEngine(),
        }

    def runner(self, **options: Any) -> Runner:
        """A new runner, as a restarted daemon would make it."""
        return Runner(
            soldiers=self.soldiers, sessions=self.sessions, ledger=self.ledger, engines=self.engines, **options
        )

    def program(self, source: str, name: str = "agent.py") -> Path:
        """Write a Python program; ``tell`` and ``result`` are there for it."""
        path = self.root / name
        path.write_text(_PRELUDE + textwrap.dedent(source))
        return path

    def order(self, source: str | None = None, **changes: Any) -> Order:
        """An order to the telling engine to run this program."""
        order = Order(
            run_id="soldier-1",
            task_id="task-20260101-001",
            engine="telling",
            prompt="do it",
            cwd=self.cwd,
            result_path=self.result,
            options={"program": str(self.program(source))} if source is not None else {},
            timers=PATIENT,
            labels={"general": "gen-test"},
        )
        return replace(order, **changes)

    def folder(self, run_id: str = "soldier-1") -> Path:
        return self.soldiers / run_id

    def document(self, name: str, run_id: str = "soldier-1") -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder(run_id) / name).read_text())
        return loaded

    def ledger_lines(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for path in self.ledger.glob("*.jsonl") for line in path.read_text().splitlines()]

    def alive(self, run_id: str = "soldier-1") -> set[int]:
        """Everything of a run that is alive: what has its mark, and what writes to its transcript without it."""
        outputs = [self.sessions / f"{run_id}.json", self.sessions / f"{run_id}.err"]
        writing = {process.pid for process in look_at_all() if process.alive and writes(process.pid, outputs)}
        return writing | {process.pid for process in bearing(run_id)}

    def fifo(self, name: str = "go") -> Path:
        """A pipe at which a program waits until the test lets it go."""
        path = self.root / name
        os.mkfifo(path)
        return path


def let_go(fifo: Path) -> None:
    """Let a program go that waits at a pipe. Waits until it is there."""
    with fifo.open("w") as file:
        file.write("go")


_PRELUDE = """\
import json, os, signal, subprocess, sys, time

def tell(**event):
    print(json.dumps(event), flush=True)

def result(**document):
    with open(os.environ["KINGDOM_RESULT_PATH"], "w") as file:
        json.dump(document, file)

def wait_at(path):
    open(path).read()

"""
