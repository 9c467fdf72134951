"""A court on several machines in this event loop: each has a home of its own, all share one PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.commands import inject_event
from kingdom.court.config import load_system
from kingdom.court.home import Home
from kingdom.court.init_home import HomeChoices, SharedQueues
from kingdom.court.loop import Services, run_role
from kingdom.court.machines.joining import create_first_machine, join_court
from kingdom.court.machines.rights import Rights
from kingdom.court.queues import TASKS
from kingdom.court.soldiers import all_soldiers
from tests.support.command import COMMAND, environment
from tests.support.courts import PATIENCE

ENDLESS = ["/bin/sh", "-c", "echo 'This takes long'; exec sleep 600"]
QUICK = {
    "steps": [
        {"usage": {"input": 100, "output": 20, "cost_usd": 0.5, "turns": 1}},
        {"result": {"status": "success", "summary": "done"}},
    ]
}
ASKS = {
    "steps": [{"say": "I have a question"}, {"ask": {"question": "Release it?", "choices": ["yes", "no"]}}],
    "on_resume": [{"result": {"status": "success", "summary": "the answer was {answer}"}}],
}


COUNTING_WORKER = """\
import json, os, sys, time
task = json.load(open(".kingdom-task.json"))["task_id"]
with open(sys.argv[1], "a") as file:
    file.write(task + "\\n")
time.sleep(0.3)
json.dump({"status": "success", "summary": "done"}, open(os.environ["KINGDOM_RESULT_PATH"], "w"))
"""  # a soldier that writes its task down, in the file that it is given


async def kingdom_up(home: Home, *, inside: Sequence[str] = (), log: Path | None = None) -> asyncio.subprocess.Process:
    """``kingdom up`` for a home, without a dashboard; what it says is in ``log``, else in ``up.txt`` of the home."""
    with (log or home.root / "up.txt").open("a") as said:
        return await asyncio.create_subprocess_exec(
            *inside,
            *COMMAND,
            "up",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment(KINGDOM_HOME=str(home.root), KINGDOM_WEB="off"),
            start_new_session=True,
        )


def install_counting(home: Home, folder: Path) -> Path:
    """Install ``gen-work``, whose soldiers write their tasks down; return the file with them."""
    (folder / "worker.py").write_text(COUNTING_WORKER)
    done = folder / "done.txt"
    install(home, "gen-work", "command", argv=[sys.executable, str(folder / "worker.py"), str(done)])
    return done


class Machine:
    """One machine: its home, and the roles that run now."""

    def __init__(self, home: Home, services: Services) -> None:
        self.home = home
        self.services = services
        self.url = load_system(home).queue_url(home)
        self._running: dict[str, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    def start(self, *names: str) -> None:
        """Start roles."""
        for name in names:
            stop = asyncio.Event()
            role = make_role(name, self.services)
            self._running[name] = stop, asyncio.create_task(run_role(role, self.services, stop))

    async def stop(self, *names: str) -> None:
        """Stop roles as a person would."""
        for name in names or [*self._running]:
            stop, task = self._running.pop(name)
            stop.set()
            await task

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The lines of its journal."""
        try:
            return [json.loads(line) for line in self.home.journal.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def result(self, task_id: str) -> dict[str, Any] | None:
        """The result of a task, if this home has it."""
        path = self.home.result(task_id)
        return json.loads(path.read_text()) if path.exists() else None

    async def emit(self, number: int, general: str = "gen-quick", **payload: Any) -> str:
        """Give the court something to do; returns the id of the event."""
        event_id, kind = f"evt-test-{number}", f"{general.removeprefix('gen-')}.work"
        await inject_event(self.services, {"id": event_id, "type": kind, "source": "test", "payload": payload})
        return event_id

    async def holder(self, task_id: str) -> str | None:
        """Who holds a task, as ``general@machine``."""
        record = await self.services.bus.find(task_id)
        held = record is not None and record.status == "PROCESSING"
        return record.locked_by.partition("/")[0] if record is not None and held and record.locked_by else None

    async def tasks(self) -> dict[str, str]:
        """The status of every task, by id."""
        return {one.envelope.event_id: one.status async for one in self.services.bus.records(TASKS)}


async def eventually(look: Callable[[], Awaitable[Any] | Any]) -> Any:
    """Wait until something is there, and return it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = look()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.02)


def install(home: Home, name: str, engine: str = "scripted", **options: Any) -> None:
    """Put a general into a home."""
    folder = home.general(name)
    folder.mkdir(parents=True)
    (folder / "prompt.md").write_text("{% if resume %}Go on.{% else %}Do it.{% endif %}\n{{ report }}\n")
    manifest = {
        "name": name,
        "description": "for tests",
        "engine": {"name": engine, "options": options},
        "subscribes": [f"{name.removeprefix('gen-')}.work"],
        "retries": 0,
        "concurrency": 4,
    }
    (folder / "manifest.yaml").write_text(json.dumps(manifest))


def change_manifest(home: Home, general: str, **changes: Any) -> None:
    """Change the manifest of a general that :func:`install` has put there."""
    manifest = home.general(general) / "manifest.yaml"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


def install_all(home: Home) -> None:
    """Put the three generals of these tests into a home: a quick one, one that asks, one that takes for ever."""
    install(home, "gen-quick", script=QUICK)
    install(home, "gen-asks", script=ASKS)
    install(home, "gen-endless", "command", argv=ENDLESS)


@contextlib.asynccontextmanager
async def first_machine(root: Path, url: str) -> AsyncIterator[Machine]:
    """The first machine of a court, on which no general runs."""
    shared = SharedQueues("seat", url=url, generals=())
    result = await create_first_machine(root, shared, HomeChoices(shared=shared), (), force=False)
    install_all(result.home)
    async with _opened(result.home) as machine:
        yield machine


@contextlib.asynccontextmanager
async def joined_machine(root: Path, url: str, name: str, **options: Any) -> AsyncIterator[Machine]:
    """A further machine, after the first one has published its generals. It has a role of the database of its own."""
    own = await Rights(url).add(name, options.get("generals"))
    assert own is not None
    own = own.replace(urlsplit(own).password or "", "")  # it is not needed on this machine, nor allowed in a file
    result, _ = await join_court(root, SharedQueues(name, url=own, joined=True, **options), force=False)
    async with _opened(result.home) as machine:
        yield machine


@contextlib.asynccontextmanager
async def _opened(home: Home) -> AsyncIterator[Machine]:
    async with open_services(home) as services:
        machine = Machine(home, services)
        try:
            yield machine
        finally:
            await machine.stop()
            for soldier in [one for one in all_soldiers(home) if one.alive]:  # they outlive their general
                soldier.interrupt()
                assert await asyncio.to_thread(soldier.wait, PATIENCE)
