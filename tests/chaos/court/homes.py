"""A home for the campaign: four generals, each with another way to work, and what their soldiers leave behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kingdom.agents.engine import inherited_environment
from kingdom.court.queues import STATES, declare_queues, document_from_record, open_queues
from tests.support.courts import Court

HAND: Final = "gen-hand"  # a program, in a folder of its own
TREE: Final = "gen-tree"  # a program that commits, in a worktree
PLAY: Final = "gen-play"  # a script, played inside the general's process
ASK: Final = "gen-ask"  # a script that asks a person
GENERALS: Final = (HAND, TREE, PLAY, ASK)
REPO: Final = "crown/castle"

# What a soldier does. Each line in the log is one write: a kill leaves it whole or leaves it out.
PROGRAM: Final = """\
import json, os, subprocess, sys, time
task = json.load(open(".kingdom-task.json"))
payload = task["payload"]
def note(what):
    line = {"what": what, "run": os.environ["KINGDOM_RUN_ID"], "task": task["task_id"], "event": task["event_id"]}
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, (json.dumps(line) + "\\n").encode())
    os.close(log)
note("began")
print("at work on", task["task_id"], flush=True)
time.sleep(payload.get("seconds", 0))
if payload.get("commit"):
    open("stone.txt", "a").write(os.environ["KINGDOM_RUN_ID"] + "\\n")
    git = ["git", "-c", "user.name=Hand", "-c", "user.email=hand@kingdom.invalid"]
    subprocess.run([*git, "add", "stone.txt"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", task["task_id"]], check=True)
note("did")
path = os.environ["KINGDOM_RESULT_PATH"]
with open(path + ".new", "w") as file:
    json.dump({"status": "success", "summary": "done", "memory_updates": ["did " + task["event_id"]]}, file)
os.rename(path + ".new", path)
"""


@dataclass(frozen=True)
class Effect:
    """One line of a soldier's log."""

    what: str  # began, or did
    run: str
    task: str
    event: str


class Grounds:
    """The home, the log of the soldiers and the repository they work on, side by side below one folder.

    ``queues`` is the URL of a database in which the queues of the court are; None: they are files of the home.
    """

    def __init__(self, folder: Path, queues: str | None = None) -> None:
        self.folder = folder
        self.queues = queues
        self.court = Court(folder / "home")
        self.root = self.court.root
        self._log = folder / "effects.jsonl"
        self._repositories = folder / "repositories"

    def make(self) -> None:
        """Found the court and install its generals."""
        self.court.make()
        shutil.rmtree(self.root / "config/generals/gen-test")
        self._make_repository()
        program = self.folder / "program.py"
        program.write_text(PROGRAM)
        command = {
            "name": "command",
            "options": {"argv": [sys.executable, "-I", "-S", str(program), str(self._log)]},
        }
        self._install(HAND, command, concurrency=4, retries=2)
        self._install(TREE, command, concurrency=2, evidence=["commit"], retries=3)
        work = [{"say": "playing"}, {"usage": {"input": 100, "output": 10}}, {"wait": 0.05}]
        self._install(PLAY, {"name": "scripted", "options": {"script": [*work, {"result": {"summary": "played"}}]}})
        script = {
            "steps": [{"say": "thinking"}, {"ask": {"question": "Which way?", "choices": ["left", "right"]}}],
            "on_resume": [{"say": "going {answer}"}, {"result": {"summary": "went {answer}"}}],
        }
        self._install(ASK, {"name": "scripted", "options": {"script": script}})
        self._configure()

    def queue(self) -> Path:
        """The folder of the queues; of a database, a picture of it as it is now."""
        if self.queues is None:
            return self.root / "queue"
        picture = self.folder / "picture"
        shutil.rmtree(picture, ignore_errors=True)
        asyncio.run(_draw(self.queues, picture))
        return picture

    def effects(self) -> list[Effect]:
        """What the soldiers did, in the order they did it."""
        if not self._log.exists():
            return []
        return [Effect(**json.loads(line)) for line in self._log.read_text().splitlines()]

    def _install(self, name: str, engine: dict[str, Any], **more: Any) -> None:
        manifest = {"engine": engine, "concurrency": 3, "fetch_repo": name == TREE, **more}
        self.court.install(name, **manifest)

    def _configure(self) -> None:
        system = {
            "name": "chaos",
            "concurrency": {"max_soldiers": 8},
            "retries": {"killed": 100},  # the campaign kills more than any court should see
            "repos": {"base_url": str(self._repositories)},
            "queue": {"transport": self.queues},
        }
        (self.root / "config/system.yaml").write_text(yaml.safe_dump(system))
        # A machine busy with the campaign is no reason to hold events back.
        never = {"yellow": 98, "orange": 99, "red": 100}
        health = {"cpu_percent": dict.fromkeys(never), "memory_percent": never, "disk_percent": never}
        chamberlain = {"interval_seconds": 240, "health": health}
        (self.root / "config/chamberlain.yaml").write_text(yaml.safe_dump(chamberlain))

    def _make_repository(self) -> None:
        place = self._repositories / REPO
        place.mkdir(parents=True)
        git = ["git", "-c", "user.name=Crown", "-c", "user.email=crown@kingdom.invalid", "-C", str(place)]
        for arguments in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "the first stone"]):
            subprocess.run([*git, *arguments], check=True, env=inherited_environment(os.environ))


async def _draw(url: str, folder: Path) -> None:
    """Write the documents of a database as files would lie."""
    async with open_queues(url) as bus:
        await declare_queues(bus)
        for stream, states in STATES.items():
            for state in states.values():
                (folder / stream / state).mkdir(parents=True, exist_ok=True)
            async for record in bus.records(stream):
                path = folder / stream / states[record.status] / f"{record.envelope.event_id}.json"
                path.write_text(json.dumps(document_from_record(record).document))
