"""A court on four machines, under faults of machines, links, processes, a disk and the database.

One machine leads, one stands by, two run the general; each is a network namespace with a home on a small disk of its
own. Events come in all the time. In the end every event is done by one task, with one result and one line in the
journal; no two soldiers were at one task at the same time; work that costs money stays within its budget; and nothing
is left that nobody watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kingdom.bus.delivery import Record
from kingdom.bus.errors import BusError
from kingdom.court.config import MACHINE_FILE
from kingdom.court.home import Home
from kingdom.court.init_home import SharedQueues
from kingdom.court.machines.joining import join_court
from kingdom.court.machines.own_lead import LEASE_SECONDS, read_lead
from kingdom.court.machines.registry import Registry
from kingdom.court.queues import EVENTS, TASKS
from kingdom.journal import Reader
from tests.chaos.court.paid_work import FIRST, GENERAL, PaidWork
from tests.chaos.disks import filled, small_disk
from tests.chaos.machine_faults import FaultTally, MachineFaults
from tests.chaos.processes import Violation
from tests.support.courts import Court
from tests.support.machines import Machine, change_manifest, first_machine, install, kingdom_up
from tests.support.namespaces import Relay, Space, open_spaces
from tests.support.postgres import PostgresServer, create_schema

_NAMES: Final = ("seat", "spare", "one", "two")
_LEADERS: Final = ("seat", "spare")
_DISK_MEGABYTES: Final = 128
_BACKLOG: Final = 12  # events under way
_DRAIN: Final = 400.0  # seconds for what is left, without faults: some leases of tasks have to end
_MAX_AWAY: Final = 3.0  # seconds before a machine is started again
_LOOK: Final = 0.2
_THAW: Final = 6.0  # seconds in which the soldiers of a machine that was frozen learn that they must stop
_WORKER: Final = """\
import fcntl, json, os, sys, time
task = json.load(open(".kingdom-task.json"))["task_id"]
lock = open(os.path.join(sys.argv[1], task), "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(os.path.join(sys.argv[1], task + ".two"), "a").write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
time.sleep(float(sys.argv[2]))
json.dump({"status": "success", "summary": "done"}, open(os.environ["KINGDOM_RESULT_PATH"], "w"))
"""


@dataclass
class Tally(FaultTally):
    """What was done to the machines, and what they did."""

    events: int = 0
    changes: int = 0  # of the machine that leads
    paid: str = ""  # what was spent

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.events} events, the lead went over {self.changes} times; {self.paid}"


class _Host:
    """One machine: its namespace, its home, and ``kingdom up`` on it."""

    def __init__(self, space: Space, home: Home, disk: Path, log: Path) -> None:
        self.space = space
        self.home = home
        self.disk = disk
        self.busy = False  # whether a fault is at it
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._again = 0.0

    @property
    def leads(self) -> bool:
        lead = read_lead(self.home)
        return lead is not None and lead.sure and "king" in Court(self.home.root).pids()

    async def keep(self, chance: random.Random) -> None:
        """Start it, some time after it ended."""
        if self._process is not None and self._process.returncode is not None:
            self._process = None
            self._again = time.monotonic() + chance.uniform(0, _MAX_AWAY)
        if self._process is None and time.monotonic() >= self._again and not self.busy:
            self._process = await kingdom_up(self.home, inside=self.space.inside, log=self._log)

    async def stop(self) -> None:
        """As a person would."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._process.wait(), 60)

    def tail(self) -> str:
        return f"{self._log}:\n" + "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


@dataclass
class CourtMachinesCampaign:
    """Faults against the machines of a court. ``tell`` gets a line every ten faults."""

    folder: Path
    seed: int
    tell: Callable[[str], None] = print
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed}/court-machines")
        self._locks = self.folder / "locks"
        self._locks.mkdir()

    def run(self, faults: int) -> Tally:
        """Run so many faults, then let everything come to its end, and check it."""
        self._paid = PaidWork(max(2, faults // 4))
        logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # it says when it cannot connect, which is meant
        with ExitStack() as stack:
            server = stack.enter_context(PostgresServer(self.folder / "pg"))
            hub, spaces = stack.enter_context(open_spaces(len(_NAMES)))
            relay = stack.enter_context(Relay(self.folder / "pg" / ".s.PGSQL.5432", hub))
            disks = {
                name: stack.enter_context(small_disk(self.folder / f"disk-{name}", _DISK_MEGABYTES)) for name in _NAMES
            }
            asyncio.run(self._run(faults, server, dict(zip(_NAMES, spaces, strict=True)), relay, disks))
        return self.tally

    async def _run(
        self, faults: int, server: PostgresServer, spaces: dict[str, Space], relay: Relay, disks: dict[str, Path]
    ) -> None:
        self._faults = MachineFaults(self._chance, server, relay, LEASE_SECONDS)
        self.tally.clocks = self._faults.shift_clocks([*spaces.values()], self.folder)
        url = await create_schema(server.url, "court")
        async with AsyncExitStack() as stack:
            self._seat = await stack.enter_async_context(first_machine(disks["seat"] / "home", url))
            await self._join_all(url, spaces, relay, disks)
            keeping = asyncio.create_task(self._keep())
            try:
                for number in range(1, faults + 1):
                    await self._top_up()
                    await asyncio.sleep(self._chance.uniform(0.5, 3))
                    await self._fault()
                    if number % 10 == 0:
                        self.tell(f"machines    {number} faults, {self.tally.events} events")
                await self._drain()
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
            await self._check()

    async def _join_all(self, url: str, spaces: dict[str, Space], relay: Relay, disks: dict[str, Path]) -> None:
        urls = {
            name: f"postgresql://postgres@{space.address}:{relay.open(space.address)}/postgres?schema=court"
            for name, space in spaces.items()
        }
        seat = self._seat.home
        worker = self.folder / "worker.py"
        worker.write_text(_WORKER)
        install(seat, "gen-work", "command", argv=[sys.executable, str(worker), str(self._locks), "0.8"])
        change_manifest(seat, "gen-work", retries=5)
        self._paid.install(seat)
        await Registry(url).publish_packages(seat)
        homes = {"seat": seat}
        for name in _NAMES[1:]:
            joined: dict[str, Any] = (
                {"joined": True, "generals": ("gen-work", GENERAL)} if name not in _LEADERS else {"generals": ()}
            )
            result, _ = await join_court(disks[name] / "home", SharedQueues(name, url=url, **joined), force=False)
            homes[name] = result.home
        for name, home in homes.items():  # from its own machine, the database is reached by its link
            settings = home.config / MACHINE_FILE
            settings.write_text(settings.read_text().replace(url, urls[name]))
        self._hosts = [_Host(spaces[name], homes[name], disks[name], self.folder / f"{name}.log") for name in _NAMES]

    async def _keep(self) -> None:
        leader = ""
        while True:
            for host in self._hosts:
                await host.keep(self._chance)
            now = next((host.space.name for host in self._hosts if host.leads), leader)
            self.tally.changes += leader not in ("", now)
            leader = now
            await asyncio.sleep(_LOOK)

    async def _top_up(self) -> None:
        """Put events in until enough are under way. The database may be away at this moment."""
        with contextlib.suppress(BusError):
            open_events = sum(not _ended(status) for status in (await self._statuses()).values())
            for _ in range(_BACKLOG - open_events):
                self.tally.events += 1
                await self._seat.emit(self.tally.events, "gen-work")
            await self._paid.emit(self._seat)

    async def _statuses(self) -> dict[str, str]:
        return {event: status for event, status in (await self._all_statuses()).items() if not _is_paid(event)}

    async def _all_statuses(self) -> dict[str, str]:
        return {one.envelope.event_id: one.status async for one in self._seat.services.bus.records(EVENTS)}

    async def _fault(self) -> None:
        host = self._chance.choice(self._hosts)
        kinds = self._faults.kinds()
        name = self._chance.choice(["process killed", "process killed", "disk full", *kinds])
        self.tally.faults[name] += 1
        host.busy = name == "machine killed"
        try:
            if name == "process killed":
                self._kill_one(host)
            elif name == "disk full":
                await self._fill(host)
            else:
                await kinds[name](host.space)
        finally:
            host.busy = False

    def _kill_one(self, host: _Host) -> None:
        if pids := host.space.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._chance.choice(pids), signal.SIGKILL)

    async def _fill(self, host: _Host) -> None:
        with filled(host.disk):
            await asyncio.sleep(self._chance.uniform(1, 8))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _drain(self) -> None:
        deadline = time.monotonic() + _DRAIN
        while left := [one for one, status in (await self._statuses()).items() if not _ended(status)]:
            if time.monotonic() > deadline:
                tasks = Counter((await self._seat.tasks()).values())
                logs = "\n".join(host.tail() for host in self._hosts)
                raise Violation(f"{len(left)} events are stuck: {left[:5]}; tasks: {tasks}\n{logs}")
            await asyncio.sleep(_LOOK)
        while not await self._paid_work_is_over():
            if time.monotonic() > deadline:
                raise Violation(f"work is stuck whose budget is not used up: {self._paid.check(self._homes)}")
            await asyncio.sleep(_LOOK)

    async def _paid_work_is_over(self) -> bool:
        tasks = [one.status async for one in self._seat.services.bus.records(TASKS) if _is_paid(_event_of(one))]
        events = [status for event, status in (await self._all_statuses()).items() if _is_paid(event)]
        return all(map(_ended, tasks)) and self._paid.is_used(self._homes, sum(map(_ended, events)))

    @property
    def _homes(self) -> list[Home]:
        return [host.home for host in self._hosts]

    async def _check(self) -> None:
        leader = await self._leader()
        events = {one.envelope.event_id: _event_of(one) async for one in self._seat.services.bus.records(TASKS)}
        events = {task: event for task, event in events.items() if not _is_paid(event)}
        statuses = Counter((await self._statuses()).values())
        if statuses != {"DONE": self.tally.events}:
            raise Violation(f"{self.tally.events} events: {statuses}")
        machine = Machine(leader.home, self._seat.services)
        deadline = time.monotonic() + 60
        while (
            len(done := [task for task in _completed(machine) if task in events]) < self.tally.events
            and time.monotonic() < deadline
        ):
            await asyncio.sleep(_LOOK)
        # A task whose soldier was killed more often than it is tried again is followed by another one of its event.
        counts = Counter(events[task] for task in done)
        if set(counts.values()) != {1} or len(counts) != self.tally.events:
            more = [event for event, count in counts.items() if count > 1]
            raise Violation(f"{self.tally.events} events, {len(counts)} of them done, these more than once: {more}")
        if bad := [task for task in done if (machine.result(task) or {}).get("status") != "success"]:
            raise Violation(f"tasks that are done have no result, or another one: {bad[:3]}")
        self._check_overlaps()
        self.tally.paid = self._paid.check(self._homes)
        for host in self._hosts:
            await host.stop()
        await asyncio.sleep(2)
        if left := {host.home.root.parent.name: pids for host in self._hosts if (pids := host.space.pids())}:
            raise Violation(f"processes are left on machines that were stopped: {left}")

    async def _leader(self) -> _Host:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if found := [host for host in self._hosts if host.leads]:
                return found[0]
            await asyncio.sleep(_LOOK)
        raise Violation("no machine leads: " + "\n".join(host.tail() for host in self._hosts))

    def _check_overlaps(self) -> None:
        """Two soldiers at one task are a violation, unless one was frozen and could not see yet that it must stop."""
        for note in self._locks.glob("*.two"):
            for at in map(float, note.read_text().split()):
                if not any(since <= at <= until + _THAW for since, until in self._faults.frozen):
                    raise Violation(f"two soldiers were at one task: {note.name} {at}")


def _ended(status: str) -> bool:
    return status in ("DONE", "DEAD")


def _is_paid(event_id: str) -> bool:
    return int(event_id.rpartition("-")[2]) > FIRST


def _event_of(task: Record) -> str:
    return str(task.envelope.payload["event_id"])


def _completed(machine: Machine) -> list[str]:
    """The tasks that the journal has as done. A process that is killed, or has no room, may leave a torn line."""
    found = []
    with Reader(machine.home.journal, report=lambda _problem: None) as reader:
        for line in reader.read_lines():
            with contextlib.suppress(ValueError):
                document = json.loads(line)
                found += [document["data"]["task_id"]] if document["type"] == "task.completed" else []
    return found
