"""A court whose general has its tasks done by workflows: a home, a real repository, king and general in one process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from kingdom.agents.port import Order
from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.home import Home
from kingdom.court.loop import Role
from kingdom.workflow.store import open_store
from tests.support.repositories import Remote, plain_git
from tests.support.workflow_ground import NOW

GENERAL = "gen-repair"
EVENT = "evt-github-1"
# Its runs are counted in a file; it waits for another one, then leaves a third in the worktree.
WORKER = """\
import pathlib, sys, time
begun, gate = map(pathlib.Path, sys.argv[1:3])
with begun.open("a") as file:
    file.write("x")
while not gate.exists():
    time.sleep(0.02)
pathlib.Path("fix.txt").write_text("fixed")
print("I fixed it.")
"""

# It keeps what it was asked. Without an answer it asks a person.
ASKER = """\
import json, os, pathlib, sys
log, prompt = map(pathlib.Path, sys.argv[1:3])
asked = prompt.read_text()
with log.open("a") as file:
    file.write(json.dumps(asked) + "\\n")
result = {"status": "success", "summary": "It is blue now."}
if "always" in sys.argv or "# A person's answer" not in asked:
    question = {"text": "Red or blue?", "choices": ["red", "blue"], "default": "red"}
    result = {"status": "needs_human", "question": question}
pathlib.Path(os.environ["KINGDOM_RESULT_PATH"]).write_text(json.dumps(result))
"""


class WorkflowCourt:
    """The home, and what a test looks at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.begun, self.gate = root / "begun", root / "gate"

    def found(self, works: Sequence[dict[str, Any]], **manifest: Any) -> None:
        """Make the home with a general whose template has these works, and a repository ``acme/web``."""
        self.remote = Remote(self.root / "hub" / "acme" / "web")
        self.remote.commit({"README": "hello\n"})
        folder = self.home.general(GENERAL)
        folder.mkdir(parents=True)
        general = {
            "name": GENERAL,
            "description": "Repairs what is reported.",
            "mode": "workflow",
            "template": "repair",
            "subscribes": ["github.pr.opened"],
            "retries": 0,
            **manifest,
        }
        (folder / "manifest.yaml").write_text(yaml.safe_dump(general))
        template = {"name": "repair", "description": "Repairs.", "retries": 0, "works": list(works)}
        (folder / "workflow.yaml").write_text(yaml.safe_dump(template))
        system = {"repos": {"base_url": str(self.root / "hub")}}
        (self.home.config / "system.yaml").write_text(yaml.safe_dump(system))
        (self.root / "worker.py").write_text(WORKER)
        (self.root / "asker.py").write_text(ASKER)

    @property
    def worker(self) -> dict[str, Any]:
        """An engine whose run waits for the gate, in a process of its own."""
        argv = [sys.executable, str(self.root / "worker.py"), str(self.begun), str(self.gate)]
        return {"name": "command", "options": {"argv": argv}}

    @property
    def asker(self) -> dict[str, Any]:
        """An engine that asks a person, and keeps what it was asked itself."""
        argv = [sys.executable, str(self.root / "asker.py"), str(self.root / "asked"), "{prompt_path}"]
        return {"name": "command", "options": {"argv": argv}}

    def order(self, task_id: str, **options: Any) -> Order:
        """An order as the general gives it; an option that is None is left out."""
        given = {
            "home": str(self.home.workflows),
            "template": "repair",
            "template_file": str(self.home.general(GENERAL) / "workflow.yaml"),
            "repository": {"name": "acme/web", "url": str(self.root / "hub" / "acme" / "web")},
            **options,
        }
        given = {name: value for name, value in given.items() if value is not None}
        return Order(task_id, task_id, "workflow", "", self.root, self.root / "result.json", given)

    def drop(self, event_id: str, kind: str, payload: dict[str, Any], repo: str | None = None) -> None:
        """Put the file of an event into the queue, as anybody may."""
        document = {
            "id": event_id,
            "type": kind,
            "source": kind.partition(".")[0],
            "repo": repo,
            "priority": "normal",
            "payload": payload,
            "created_at": "2026-11-15T12:00:00Z",
            "status": "pending",
        }
        pending = self.home.queue / "events" / "pending"
        pending.mkdir(parents=True, exist_ok=True)
        temporary = pending / f".tmp-{event_id}"
        temporary.write_text(json.dumps(document))
        temporary.rename(pending / f"{event_id}.json")

    def report(self) -> None:
        """Drop the event that the general takes."""
        payload = {"pr_number": 7, "title": "The parser {{ drops }} a line", "url": "https://example.com/7"}
        self.drop(EVENT, "github.pr.opened", payload, "acme/web")

    def answer(self, task_id: str, text: str) -> None:
        """Drop a person's answer."""
        payload = {"task_id": task_id, "text": text, "user": "ann"}
        self.drop(f"evt-console-response-{task_id}-1", "console.human_response", payload)

    @contextlib.asynccontextmanager
    async def reigning(self) -> AsyncIterator[Reign]:
        """King and general at work, in this process."""
        async with open_services(self.home) as services:
            roles = [make_role("king", services), make_role(GENERAL, services)]
            reign = Reign(roles)
            undo = [role.subscribe(reign.woken.set) for role in roles]
            for role in roles:
                await role.start()
            try:
                yield reign
            finally:
                for one in undo:
                    one()
                for role in reversed(roles):
                    await role.stop()

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────

    def completed(self, event_id: str = EVENT) -> bool:
        return any(self.home.queue.glob(f"events/completed/{event_id}*.json"))

    def results(self) -> list[dict[str, Any]]:
        found = [path for path in sorted(self.home.results.glob("task-*.json")) if not path.stem.endswith("-raw")]
        return [json.loads(path.read_text()) for path in found]

    def branches(self) -> list[str]:
        """Those of workflows, in all clones."""
        return [
            name
            for clone in self._clones()
            for name in plain_git(clone, "for-each-ref", "--format=%(refname:short)", "refs/heads/kingdom").split()
        ]

    def file_on(self, branch: str, name: str) -> str:
        (clone,) = self._clones()
        return plain_git(clone, "show", f"{branch}:{name}")

    def _clones(self) -> list[Path]:
        found = (self.home.workflows / "clones").rglob("HEAD")
        return [path.parent for path in found if path.parent.name == ".git"]

    def prompts(self) -> list[str]:
        """What the asker was asked, in order."""
        return [json.loads(line) for line in (self.root / "asked").read_text().splitlines()]

    async def workflows(self) -> list[Any]:
        url = f"sqlite://{self.home.workflows}/workflows.db"
        async with open_store(url, lambda: NOW) as store, store.reading() as tx:
            return await tx.workflows.list()


class Reign:
    """Roles that look at the court whenever they are woken."""

    def __init__(self, roles: Sequence[Role]) -> None:
        self.roles = roles
        self.woken = asyncio.Event()

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self.woken.clear()
                for role in self.roles:
                    await role.tick()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.woken.wait(), 0.05)


def reign_for_ever(root: str) -> None:
    """For a process that is going to be killed."""

    async def reign() -> None:
        async with WorkflowCourt(Path(root)).reigning() as reign:
            await reign.until(lambda: False, 120)

    asyncio.run(reign())
