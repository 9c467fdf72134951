"""Hours without what a court needs: its git host, the program of its engine, the model, room on the disk.

King, general and chamberlain are real, and so are git, its server, the disk and the processes of soldiers; only the
clock is a fake. Events keep coming. The end is exact: every event is completed at its first try, and people were told
once that something is away, and once that it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import yaml

from kingdom.agents.hosts import ProcessHost
from kingdom.agents.runner import Runner
from kingdom.base.files import write_json
from kingdom.court.bootstrap import configured_engines
from kingdom.court.config import load_system
from kingdom.court.general import General
from kingdom.court.general.context import GeneralDeps
from kingdom.court.king.king import King
from kingdom.court.loop import Role
from kingdom.court.models import DETECTED_BY, Event, timestamp
from kingdom.court.packages.installed import GeneralsCache
from kingdom.court.queues import put_documents
from tests.chaos.disks import NotPermitted, small_disk
from tests.chaos.processes import Violation
from tests.support.chamberlains import Watched
from tests.support.git_server import GitServer, trusted

GENERAL: Final = "gen-test"
REPO: Final = "acme/shop"
_DISK_MEGABYTES: Final = 64
_STEP_SECONDS: Final = 30.0
_EVERY_EVENT_STEPS: Final = 60  # half an hour
_AFTERWARDS_STEPS: Final = 90  # the longest pause before another look is 15 minutes
_ROLE_PID: Final = 100  # in heartbeats, so that nobody takes this process for a role
_OVERLOADED: Final = {
    "type": "result",
    "subtype": "success",
    "is_error": True,
    "api_error_status": 529,
    "terminal_reason": "api_error",
    "result": "API Error: 529 Overloaded",
    "session_id": "s1",
}
_DONE: Final = {**_OVERLOADED, "is_error": False, "api_error_status": None, "terminal_reason": None, "result": "Done."}
_CLAUDE: Final = """#!/bin/sh
cat > /dev/null
if [ -e {folder}/overloaded ]; then cat {folder}/overloaded.json; exit 1; fi
printf '{{"status": "success", "summary": "done"}}' > "$KINGDOM_RESULT_PATH"
cat {folder}/done.json
"""


@dataclass(frozen=True)
class Outage:
    """What is taken away, and the alert that people get."""

    name: str
    alert: str


GIT_HOST: Final = Outage("git host", f"held:{GENERAL}")
ENGINE: Final = Outage("engine program", f"held:{GENERAL}")
MODEL: Final = Outage("model", f"held:{GENERAL}")
DISK: Final = Outage("disk", "health")
OUTAGES: Final = (GIT_HOST, ENGINE, MODEL, DISK)


@dataclass
class Tally:
    """What came of it."""

    outages: list[str]
    hours: float
    events: int = 0
    alerts: int = 0
    soldiers: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.hours:g} simulated hours without each of: {', '.join(self.outages)}. {self.events} events "
            f"completed at their first try, {self.alerts} alerts, {self.soldiers} soldiers, in {self.seconds:.1f} s"
        )


class OutageCourt:
    """A court, and what is around it."""

    def __init__(self, folder: Path, home: Path, disk: Path | None) -> None:
        self._folder = folder
        self._disk = disk
        self._server = GitServer(folder / "git")
        self._program = folder / "claude"
        self._home = home
        self.watched: Watched
        self.events: list[str] = []
        self._failing = False  # the disk is full: ticks may raise
        self._roles: list[Role] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[OutageCourt]:
        """Have everything there and the roles started."""
        (self._folder / "overloaded.json").write_text(json.dumps(_OVERLOADED) + "\n")
        (self._folder / "done.json").write_text(json.dumps(_DONE) + "\n")
        self._program.write_text(_CLAUDE.format(folder=self._folder))
        self._program.chmod(0o755)
        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.dict(os.environ, {"KINGDOM_SANDBOX": "off"}))
            stack.enter_context(self._server)
            stack.enter_context(trusted(self._server))
            self._server.create(REPO, public=True)
            self.watched = Watched(self._home)
            self._write_configuration()
            async with self.watched.open():
                await self._start()
                try:
                    yield self
                finally:
                    for role in self._roles:
                        await role.stop()

    def _write_configuration(self) -> None:
        home = self.watched.home
        folder = home.general(GENERAL)
        folder.mkdir(parents=True)
        manifest = {
            "name": GENERAL,
            "description": "For tests.",
            "subscribes": ["test.work"],
            "fetch_repo": True,
            "retries": 0,
            "concurrency": 2,
        }
        (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
        (folder / "prompt.md").write_text("Do this:\n{{ data }}\n{{ report }}")
        system = {"repos": {"base_url": self._server.url}, "engines": {"claude": {"path": str(self._program)}}}
        (home.config / "system.yaml").write_text(yaml.safe_dump(system))
        home.results.mkdir(parents=True, exist_ok=True)

    async def _start(self) -> None:
        services, home = self.watched.services, self.watched.home
        system = load_system(home)
        generals = GeneralsCache(home)
        agents = Runner(
            soldiers=home.soldiers,
            sessions=home.sessions,
            ledger=home.ledger,
            engines=configured_engines(system),
            host=ProcessHost(),
            clock=services.clock,
        )
        deps = GeneralDeps(sleep=self._nap, monotonic=self.watched.clock)
        general = General(services, generals.current().by_name[GENERAL], system, agents, deps)
        self._roles = [King(services, system, generals.current, ()), general]
        for role in self._roles:
            await role.start()

    async def _nap(self, seconds: float) -> None:
        await asyncio.sleep(0)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def live(self, steps: int) -> None:
        """Let time pass; an event comes every half an hour."""
        for step in range(steps):
            if step % _EVERY_EVENT_STEPS == 0:
                await self._event()
            await self._look()
            self.watched.now += _STEP_SECONDS

    async def settle(self) -> None:
        """Let time pass until everything is done."""
        for _ in range(_AFTERWARDS_STEPS):
            await self._look()
            if not self.unfinished():
                break
            self.watched.now += _STEP_SECONDS
        for _ in range(4):  # people are told that it is over
            self.watched.now += _STEP_SECONDS
            await self._look()

    def unfinished(self) -> list[str]:
        completed = self.watched.home.queue / "events" / "completed"
        return [one for one in self.events if not (completed / f"{one}.json").exists()]

    async def _event(self) -> None:
        name = f"evt-test-{len(self.events) + 1}"
        document = {"id": name, "type": "test.work", "source": "test", "repo": REPO, DETECTED_BY: "sentinel"}
        event = Event.model_validate({**document, "created_at": timestamp(self.watched.now)})
        try:
            await put_documents(self.watched.services.bus, [event])
        except Exception:
            if not self._failing:
                raise
            return  # whoever publishes on a full disk is told so, and comes again
        self.events.append(name)

    async def _look(self) -> None:
        """Have every role look, until no soldier is at work."""
        async with asyncio.timeout(120):
            while True:
                for role in self._roles:
                    await self._tick(role)
                if self._failing or not self._roles[1].report()["running"]:
                    break
                await asyncio.sleep(0.02)
        for name in ("sentinel", "envoy"):
            self._beat(name, {})
        await self.watched.tick()

    async def _tick(self, role: Role) -> None:
        try:
            await role.tick()
        except Exception:
            if not self._failing:
                raise
        self._beat(role.name, role.report())

    def _beat(self, name: str, report: Any) -> None:
        path, now = self.watched.home.heartbeat(name), self.watched.now
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_json(path, {"ts": timestamp(now), "pid": _ROLE_PID, "interval": 10.0, **report}, durable=False)
        except OSError:  # as the loop of a role does
            with contextlib.suppress(OSError):
                os.utime(path, (now, now))

    # ── outages ───────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def without(self, outage: Outage) -> Iterator[None]:
        """Take something away, and give it back."""
        taken: dict[Outage, Callable[[], Any]] = {
            GIT_HOST: self._without_git_host,
            ENGINE: self._without_engine,
            MODEL: self._without_model,
            DISK: self._without_disk,
        }
        with taken[outage]():
            yield

    @contextmanager
    def _without_git_host(self) -> Iterator[None]:
        self._server.__exit__()
        try:
            yield
        finally:
            self._server.__enter__()  # at the same address

    @contextmanager
    def _without_engine(self) -> Iterator[None]:
        away = self._program.rename(self._program.with_name("claude.away"))
        try:
            yield
        finally:
            away.rename(self._program)

    @contextmanager
    def _without_model(self) -> Iterator[None]:
        flag = self._folder / "overloaded"
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()

    @contextmanager
    def _without_disk(self) -> Iterator[None]:
        assert self._disk is not None
        ballast = self._disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        self._failing, self.watched.machine.disk = True, 100.0
        try:
            yield
        finally:
            ballast.unlink()
            self._failing, self.watched.machine.disk = False, 10.0

    # ── what must have come of it ─────────────────────────────────────────────────────────────────────────────

    def check(self, outages: list[Outage]) -> None:
        """Raise :class:`Violation` when anything was lost, failed or tried twice, or told more than once."""
        home = self.watched.home
        wrong = [f"not completed: {one}" for one in self.unfinished()]
        ended = sorted((home.queue / "events" / "completed").glob("*.json"))
        statuses = {path.stem: json.loads(path.read_text())["status"] for path in ended}
        wrong += [f"{one} is {status}" for one, status in statuses.items() if status != "completed"]
        for path in sorted(home.results.glob("task-*[0-9].json")):
            result = json.loads(path.read_text())
            if (result["status"], result["retry_count"]) != ("success", 0):
                wrong.append(
                    f"{path.stem}: {result['status']} after {result['retry_count']} retries: {result['error']}"
                )
        wrong += [f"told: {line}" for line in self.watched.events("task.failed", "event.discarded")]
        done = Counter(line["task_id"] for line in self.watched.events("task.completed"))
        wrong += [f"{task} was completed {number} times" for task, number in done.items() if number != 1]
        wrong += self._alert_problems(outages)
        if wrong:
            raise Violation(f"{len(wrong)} things are wrong, the first are:\n" + "\n".join(wrong[:20]))

    def _alert_problems(self, outages: list[Outage]) -> list[str]:
        raised = Counter(alert for alert, state in self.watched.alerts() if state != "over")
        over = Counter(alert for alert, state in self.watched.alerts() if state == "over")
        expected = Counter(outage.alert for outage in outages)
        wrong = [
            f"{alert}: {raised[alert]} alerts of {number}"
            for alert, number in expected.items()
            if raised[alert] != number
        ]
        wrong += [
            f"{alert}: raised {raised[alert]} times, over {over[alert]} times"
            for alert in raised | over
            if raised[alert] != over[alert]
        ]
        # Events that wait for hours are an alert of their own.
        return wrong + [f"{alert} was not expected" for alert in raised if alert not in {*expected, "stale-events"}]


async def run_outages(folder: Path, seed: int, hours: float, rounds: int = 1) -> Tally:
    """Take everything away in turn, in a random order, for so many simulated hours each."""
    began, chance = time.monotonic(), random.Random(seed)
    with contextlib.ExitStack() as stack:
        try:
            disk: Path | None = stack.enter_context(small_disk(folder / "disk", _DISK_MEGABYTES))
        except NotPermitted:
            disk = None
        outages = [one for _ in range(rounds) for one in chance.sample(OUTAGES, len(OUTAGES)) if disk or one != DISK]
        async with OutageCourt(folder, (disk or folder) / "home", disk).open() as court:
            for outage in outages:
                await court.live(1)
                with court.without(outage):
                    await court.live(round(hours * 3600 / _STEP_SECONDS))
                await court.settle()
            court.check(outages)
            tally = Tally([one.name for one in outages], hours, len(court.events))
            tally.alerts = len(court.watched.alerts())
            tally.soldiers = len(court.watched.events("soldier.spawned"))
    tally.seconds = time.monotonic() - began
    return tally
