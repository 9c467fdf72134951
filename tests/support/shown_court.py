"""A court as it is on an ordinary morning: for pictures of the dashboard."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from kingdom.base.files import write_json
from kingdom.court.models import Event, Task, timestamp
from kingdom.court.queues import EVENTS, TASKS, declare_queues, open_queues, put_documents
from kingdom.court.supervisor.record import ProcessHandle, RoleRecord, SupervisorRecord
from tests.support.seen_court import SeenCourt

GENERALS = ("gen-jira", "gen-pr", "gen-release")
ROLES = ("sentinel", "king", *GENERALS, "envoy", "chamberlain", "web")
WORK: list[tuple[str, str, str, str]] = [
    ("gen-pr", "github.pr.review_requested", "Discounts for whole carts", "completed"),
    ("gen-jira", "jira.ticket.assigned", "SHOP-7 Prices with more than two digits", "completed"),
    ("gen-pr", "github.pr.review_requested", "Retry payment webhooks", "completed"),
    ("gen-jira", "jira.ticket.assigned", "SHOP-12 Export orders as CSV", "failed"),
    ("gen-release", "github.release.planned", "Release v2.4.0", "needs_human"),
    ("gen-pr", "github.pr.mentioned", "Is the lock in cart.py still needed?", "completed"),
    ("gen-pr", "github.pr.review_requested", "Move session storage to Redis", "in_progress"),
    ("gen-jira", "jira.ticket.assigned", "SHOP-19 Empty cart shows an error", "in_progress"),
    ("gen-pr", "github.pr.review_requested", "Faster product search", "pending"),
]
SAID = {
    "gen-pr": [
        "Reading the diff of pull request 218 (14 files, +402 −167).",
        "→ Bash git diff --stat main...session-redis",
        "Sessions are written before the transaction commits: a crash between the two logs people out.",
        "→ Bash pytest tests/session -q",
        "31 passed. Two cases are not covered: an expired key, and Redis being away.",
        "Writing the review.",
    ],
    "gen-jira": [
        "The error comes from Cart.total(): sum() of an empty list is an int, and .quantize() is missing there.",
        "→ Edit src/shop/cart.py",
        "→ Bash pytest tests/cart -q",
        "12 passed, 1 failed: test_empty_cart_has_currency",
        "The currency of an empty cart must come from the customer, not from the first item.",
        "→ Edit src/shop/cart.py",
    ],
}
LIMIT = "the monthly budget of gen-release is $20.00: $18.40 spent, this run may take $2.10"


class ShownCourt(SeenCourt):
    """A home, filled with a morning's work."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._asking = ""
        (self.home.config / "system.yaml").write_text(
            "timezone: UTC\nbudget: {daily_usd: 25, monthly_usd: 400}\nconcurrency: {max_soldiers: 4}\n"
        )
        for name in GENERALS:
            folder = self.home.general(name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "manifest.yaml").write_text(f"name: {name}\ndescription: works\nsubscribes: [shop.*]\n")
            (folder / "prompt.md").write_text("Do it.\n")

    async def fill_morning(self) -> None:
        """Everything that happened since nine."""
        now = time.time()
        async with open_queues(self.home.queue_url) as bus:
            await declare_queues(bus)
            for number, (general, kind, title, status) in enumerate(WORK, 1):
                at = now - 60 * (len(WORK) - number) - 40
                task_id = f"task-{timestamp(now)[:10].replace('-', '')}-{number:03}"
                event = {"id": f"evt-github-{4700 + number}", "type": kind, "source": "github", "repo": "acme/shop"}
                payload = {"title": title, "number": 200 + number}
                created = {"created_at": timestamp(at)}
                await put_documents(bus, [Event.model_validate({**event, **created, "payload": payload})])
                task = {"id": task_id, "event_id": event["id"], "target_general": general, "type": kind}
                await put_documents(
                    bus, [Task.model_validate({**task, **created, "repo": "acme/shop", "payload": payload})]
                )
                (held,) = await bus.claim(EVENTS, worker="king", ids=[event["id"]], lease=3600)
                await bus.settle(done=[held])
                if status != "pending":
                    (held,) = await bus.claim(TASKS, worker=general, ids=[task_id], lease=3600)
                    if status != "in_progress":
                        await bus.settle(done=[held if status == "completed" else (held, status)])
                self._tell(at, general, task_id, kind, status, title)
        self._run(now)
        for cost, tokens in ((1.84, 412_000), (3.1, 655_000), (0.92, 190_000), (2.4, 508_000)):
            self.spend(cost, tokens)

    def _tell(self, at: float, general: str, task_id: str, kind: str, status: str, title: str) -> None:
        told: list[tuple[float, str, str, dict[str, Any]]] = [
            (0, "task.created", "king", {"task_id": task_id, "event_type": kind, "target_general": general})
        ]
        result: dict[str, Any] = {"task_id": task_id, "general": general, "status": status, "ended_at": timestamp(at)}
        if status != "pending":
            told.append((1, "task.started", general, {"task_id": task_id}))
        if status == "completed":
            told.append((38, "task.completed", general, {"task_id": task_id, "duration_seconds": 37.2}))
        if status == "failed":
            told.append((30, "task.failed", general, {"task_id": task_id, "error": "tests are red after 2 retries"}))
        if status == "needs_human":
            asked = "v2.4.0 changes the price table. Release it today?"
            told.append((25, "task.needs_human", general, {"task_id": task_id, "question": asked}))
            question = {"text": asked, "choices": ["Release", "Wait until Monday"], "deadline": timestamp(at + 86400)}
            write_json(self.home.result(task_id), {**result, "question": question})
            self._asking = task_id
        if status == "in_progress":
            soldier = f"soldier-{int(at)}-{task_id[-1]}"
            self.station(soldier, task_id, general, "claude")
            for line in SAID[general]:
                self.say(_as_claude(line), soldier)
        with self.home.journal.open("a", encoding="utf-8") as journal:
            for after, name, actor, data in told:
                entry = {"ts": timestamp(at + after)[:19] + "Z", "type": name, "actor": actor, "data": data}
                journal.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def _run(self, now: float) -> None:
        """All roles run, as far as anybody can see."""
        me = ProcessHandle.of(os.getpid())
        self.home.role("supervisor").mkdir(parents=True, exist_ok=True)
        roles = {name: RoleRecord("running", me, timestamp(now - 7200)) for name in ROLES}
        SupervisorRecord(me, timestamp(now - 7200), "inline", roles).write(self.home)
        for name in ROLES:
            self.home.role(name).mkdir(parents=True, exist_ok=True)
            beat: dict[str, Any] = {"ts": timestamp(now), "pid": os.getpid(), "interval": 60.0}
            if name == "king":
                beat |= {"asking": [self._asking], "holds": {LIMIT: {"count": 1, "events": ["evt-github-4711"]}}}
            write_json(self.home.heartbeat(name), beat)


def _as_claude(line: str) -> str:
    """A line of the transcript that Claude Code would write."""
    said: dict[str, Any] = {"type": "text", "text": line}
    if line.startswith("→ "):
        name, _, detail = line.removeprefix("→ ").partition(" ")
        key = "command" if name == "Bash" else "file_path"
        said = {"type": "tool_use", "id": "t1", "name": name, "input": {key: detail}}
    return json.dumps({"type": "assistant", "message": {"content": [said]}}, ensure_ascii=False)
