"""A home with a few documents in it, as a court that works would have it: for those who only look."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from kingdom.agents.folder import RunFolder
from kingdom.agents.port import Order
from kingdom.agents.processes import boot_id, find_process
from kingdom.base.files import write_json
from kingdom.bus import EventBus
from kingdom.court.home import Home
from kingdom.court.models import Event, Task, timestamp
from kingdom.court.queues import TASKS, declare_queues, open_queues, put_documents
from kingdom.journal import Journal

RUNNING, ASKING, FAILED, WAITING = (f"task-20260207-00{number}" for number in range(1, 5))
SOLDIER = "soldier-1770458400-1"
HOSTILE = "[red]no[/red] \x1b[2J\x07\u202etxt\ud800 end"  # markup, control characters, turned writing, half a character


class SeenCourt:
    """The home, and things that happen in it."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        for folder in (self.home.config, self.home.logs, self.home.sessions, self.home.results, self.home.ledger):
            folder.mkdir(parents=True, exist_ok=True)
        (self.home.config / "system.yaml").write_text("timezone: UTC\nbudget: {daily_usd: 10}\n")
        general = self.home.general("gen-pr")
        general.mkdir(parents=True)
        (general / "manifest.yaml").write_text("name: gen-pr\ndescription: reviews\nsubscribes: [github.pr.*]\n")
        (general / "prompt.md").write_text("Do it.\n")
        self.journal = Journal(self.home.journal)

    async def fill(self, question: str = "Which one?") -> None:
        """One task at work, one that asks, one that failed, one that waits."""
        async with open_queues(self.home.queue_url) as bus:
            await declare_queues(bus)
            for task_id in (RUNNING, ASKING, FAILED, WAITING):
                await self.put(bus, task_id)
            await bus.claim(TASKS, worker="gen-pr", ids=[RUNNING], lease=3600)
            for task_id, outcome in ((ASKING, "needs_human"), (FAILED, "failed")):
                (held,) = await bus.claim(TASKS, worker="gen-pr", ids=[task_id], lease=60)
                await bus.settle(done=[(held, outcome)])
        self.emit("task.started", "gen-pr", task_id=RUNNING)
        self.emit("task.needs_human", "gen-pr", task_id=ASKING, question="Which one?")
        self.emit("task.failed", "gen-pr", task_id=FAILED, error="no such file", retry_count=2)
        asked = {"text": question, "choices": ["a", "b"], "deadline": None}
        now = timestamp(time.time())
        write_json(
            self.home.result(ASKING),
            {"task_id": ASKING, "general": "gen-pr", "status": "needs_human", "question": asked, "ended_at": now},
        )
        self.home.role("king").mkdir(parents=True, exist_ok=True)
        beat = {"ts": now, "pid": os.getpid(), "interval": 10.0, "asking": [ASKING], "holds": {}}
        write_json(self.home.heartbeat("king"), beat)
        self.station()
        self.spend(2.5)

    async def put(self, bus: EventBus, task_id: str, **fields: Any) -> None:
        """A task and its event come into the queues; ``fields`` are of the task."""
        event = {"id": f"evt-github-{task_id}", "type": "github.pr.opened", "source": "github"}
        task = {"id": task_id, "event_id": event["id"], "target_general": "gen-pr", "type": "github.pr.opened"}
        now = timestamp(time.time())
        await put_documents(bus, [Event.model_validate({**event, "created_at": now})])
        await put_documents(bus, [Task.model_validate({**task, "created_at": now, "payload": {}, **fields})])
        self.emit(
            "task.created",
            "king",
            task_id=task_id,
            event_type="github.pr.opened",
            target_general="gen-pr",
            priority="normal",
        )

    def station(
        self, soldier: str = SOLDIER, task_id: str = RUNNING, general: str = "gen-pr", engine: str = "command"
    ) -> None:
        """A soldier at work, whose process is this one."""
        folder = RunFolder(self.home.soldiers, soldier)
        folder.create()
        folder.write_order(
            Order(
                soldier,
                task_id,
                engine,
                "",
                self.home.root,
                self.home.root / "result.json",
                options={"argv": ["true"]},
                labels={"general": general},
            )
        )
        process = find_process(os.getpid())
        assert process is not None
        write_json(
            folder.identity,
            {
                "run_id": soldier,
                "boot_id": boot_id(),
                "pid": process.pid,
                "start": process.start,
                "shim_pid": process.pid,
                "shim_start": process.start,
                "started_at": time.time() - 90,
            },
        )
        if soldier == SOLDIER:
            self.say("reading the change")

    def say(self, words: str, soldier: str = SOLDIER) -> None:
        """The soldier says something."""
        with (self.home.sessions / f"{soldier}.json").open("a", encoding="utf-8", errors="replace") as file:
            file.write(words + "\n")

    def emit(self, kind: str, actor: str, **data: Any) -> None:
        """Something is written into the journal."""
        self.journal.emit(kind, actor, data)

    def spend(self, cost: float, tokens: int = 7) -> None:
        """A run ends and is written into the ledger."""
        ts = timestamp(time.time())
        used = {"cost_usd": cost, "tokens": {"total": tokens}}
        line = {"ts": ts, "run_id": os.urandom(6).hex(), "general": "gen-pr", **used}
        with (self.home.ledger / f"{ts[:7]}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a type that wait in the queue."""
        found = [json.loads(path.read_text()) for path in (self.home.queue / "events" / "pending").glob("*.json")]
        return [event for event in found if event["type"] == kind]
