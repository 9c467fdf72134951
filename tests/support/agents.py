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

from kingdom.agents.engine import Engine, Examined, InProcessEngine, Launch
from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import ScriptedEngine
from kingdom.agents.port import AgentEvent, Began, Finished, Order, Outcome, RateLimit, Text, Timers, Tokens, Usage
from kingdom.agents.process_run import writes_to
from kingdom.agents.processes import all_processes, has_run_id
from kingdom.agents.runner import Runner

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


# Processes are found by the id of their run, on the whole machine: tests that run at once must not share one.
RUN = os.environ.setdefault("KINGDOM_TEST_RUN", f"soldier-{os.getpid()}")  # the daemons a test starts share it
QUICK = Timers(first_output=30, silence=30, total=60, after_result=0.1, stop=0.2)
# Children that leave their parent's session, or their parent.
ESCAPES = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
subprocess.Popen(["setsid", "sleep", "600"])
subprocess.Popen(["nohup", "sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
subprocess.Popen(["env", "-i", "/bin/sh", "-c", "trap '' INT TERM HUP; sleep 600 & wait"])
for _ in range(2):  # a daemon: fork, a session of its own, fork again
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
"""


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
        self.engines: dict[str, Engine | InProcessEngine] = {
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
            run_id=RUN,
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

    def folder(self, run_id: str = RUN) -> Path:
        return self.soldiers / run_id

    def document(self, name: str, run_id: str = RUN) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder(run_id) / name).read_text())
        return loaded

    def ledger_lines(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for path in self.ledger.glob("*.jsonl") for line in path.read_text().splitlines()]

    def alive(self, *run_ids: str) -> set[int]:
        """Everything of these runs that is alive: what has their mark, and what writes to a transcript without it."""
        runs = run_ids or (RUN,)
        files = {str((self.sessions / f"{run}.{kind}").resolve()) for run in runs for kind in ("json", "err")}
        return {
            process.pid
            for process in all_processes()
            if process.alive
            and process.pid != os.getpid()
            and (writes_to(process.pid, files) or any(has_run_id(process.pid, run) for run in runs))
        }

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


async def run_to_end(barracks: Barracks, source: str, **changes: Any) -> tuple[Outcome, list[AgentEvent]]:
    """Run a program to its end. Nothing of it is alive then."""
    events: list[AgentEvent] = []
    order = barracks.order(source, **changes)
    outcome = await (await barracks.runner().start(order, events.append)).wait()
    assert barracks.alive(order.run_id) == set()
    return outcome, events
