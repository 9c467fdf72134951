"""Engines on three machines that share a store, under faults of machines, links, processes and the database.

Each machine is a network namespace with a home of its own. Its engine is started again some time after it ended. Every
workflow must come to its end, with one checkpoint for each Work, whichever machines made them, all of them on the
remote; nobody may work on a Work while another machine does; and at the end nothing is left that nobody watches.
"""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kingdom.workflow.commands import send_command
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.statuses import WorkflowStatus
from tests.chaos.machine_faults import FaultTally, MachineFaults
from tests.chaos.processes import ROOT, Violation
from tests.support.namespaces import Relay, Space, open_spaces
from tests.support.postgres import PostgresServer, create_schema
from tests.support.repositories import Remote, plain_git
from tests.support.shared_store import create, holders, open_machine, runs

LEASE: Final = 6
_MACHINES: Final = 3
_AT_ONCE: Final = 5  # workflows under way
_WORKS: Final = ("one", "two", "three")
_MAX_AWAY: Final = 4.0  # seconds before an engine is started again
_DRAIN: Final = 180.0  # seconds for what is left, without faults
_LOOK: Final = 0.1
_THAW: Final = 4.0  # seconds in which agents of a machine that was frozen learn that its lease is over


@dataclass
class Tally(FaultTally):
    """What was done to the machines, and what they did."""

    workflows: int = 0
    moved: int = 0  # times that a workflow was taken over

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.workflows} workflows, taken over {self.moved} times"


class _Machine:
    """One machine: its namespace, its home, and its engine."""

    def __init__(self, space: Space, folder: Path, url: str, logs: Path) -> None:
        self.space = space
        self.folder = folder
        self.busy = False  # whether a fault is at it
        self._url = url
        self._log = logs / f"{folder.name}.log"
        self._engine: subprocess.Popen[bytes] | None = None
        self._again = 0.0

    def keep(self, chance: random.Random) -> None:
        """Start the engine, some time after it ended."""
        if self._engine is not None and self._engine.poll() is not None:
            self._engine = None
            self._again = time.monotonic() + chance.uniform(0, _MAX_AWAY)
        if self._engine is None and time.monotonic() >= self._again and not self.busy:
            words = [sys.executable, "-m", "tests.support.shared_store", str(self.folder), self._url, str(LEASE)]
            with self._log.open("ab") as log:
                self._engine = self.space.start(words, cwd=ROOT, stdout=log, stderr=log)

    def kill_engine(self) -> None:
        if self._engine is not None:
            self._engine.kill()
            self._engine.wait()

    def tail(self) -> str:
        return f"{self._log}:\n" + "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


@dataclass
class MachinesCampaign:
    """Faults against three machines. ``tell`` gets a line every ten faults."""

    folder: Path
    seed: int
    tell: Callable[[str], None] = print
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed}/machines")
        self._ids: list[str] = []
        self._remote = Remote(self.folder / "remote")
        self._locks = self.folder / "locks"
        self._locks.mkdir()

    def run(self, faults: int) -> Tally:
        """Run so many faults, then let everything come to its end, and check it."""
        logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # it says when it cannot connect, which is meant
        with (
            PostgresServer(self.folder / "pg") as server,
            open_spaces(_MACHINES) as (hub, spaces),
            Relay(self.folder / "pg" / ".s.PGSQL.5432", hub) as relay,
        ):
            asyncio.run(self._run(faults, server, spaces, relay))
        return self.tally

    async def _run(self, faults: int, server: PostgresServer, spaces: list[Space], relay: Relay) -> None:
        self._faults = MachineFaults(self._chance, server, relay, LEASE)
        self.tally.clocks = self._faults.shift_clocks(spaces, self.folder)
        url = await create_schema(server.url, "machines")
        self._machines = [self._machine(space, relay, number) for number, space in enumerate(spaces)]
        async with open_machine(self.folder / "person", url) as person:
            self._parts = person
            keeping = asyncio.create_task(self._keep())
            try:
                for number in range(1, faults + 1):
                    await self._top_up()
                    await asyncio.sleep(self._chance.uniform(0.5, 2.5))
                    await self._fault()
                    if number % 10 == 0:
                        self.tell(f"machines    {number} faults, {len(self._ids)} workflows")
                await self._drain()
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
            await self._check(url)

    def _machine(self, space: Space, relay: Relay, number: int) -> _Machine:
        port = relay.open(space.address)
        url = f"postgresql://postgres@{space.address}:{port}/postgres?schema=machines"
        return _Machine(space, self.folder / f"m{number}", url, self.folder)

    async def _keep(self) -> None:
        while True:
            for machine in self._machines:
                machine.keep(self._chance)
            await asyncio.sleep(_LOOK)

    # ── work ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _works(self) -> list[Any]:
        """Works that write a file, and note when two agents are at the same one."""
        found = []
        for name in _WORKS:
            own = f"{self._locks}/$(basename $(dirname $PWD)).{name}"
            work = f"echo {name} > {name}.txt; sleep {self._chance.uniform(0.2, 1.5):.1f}"
            alone = f"exec 9> {own}; flock -n 9 || echo {name} $(cat /proc/uptime) $PWD >> {own}.two"
            found.append(runs(name, f"{alone}; {work}"))
        return found

    async def _top_up(self) -> None:
        """Start workflows until enough are under way. The database may be away at this moment."""
        async with asyncio.timeout(60):
            while True:
                try:
                    states = await self._states()
                except Exception:  # noqa: BLE001 - it is back in a moment
                    await asyncio.sleep(_LOOK)
                else:
                    break
            for _ in range(_AT_ONCE - sum(not _ended(status) for status in states.values())):
                workflow_id = await create(self._parts, self._remote, *self._works())
                self._ids.append(workflow_id)
                await send_command(self._parts.store.bus, "StartWorkflow", workflow_id)

    async def _states(self) -> dict[str, WorkflowStatus]:
        async with self._parts.store.reading() as tx:
            return {workflow_id: (await tx.workflows.get(workflow_id)).status for workflow_id in self._ids}

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _fault(self) -> None:
        machine = self._chance.choice(self._machines)
        kinds = self._faults.kinds()
        name = self._chance.choice(["engine killed", *kinds])
        self.tally.faults[name] += 1
        machine.busy = True
        try:
            if name == "engine killed":
                machine.kill_engine()
            else:
                await kinds[name](machine.space)
        finally:
            machine.busy = False

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _drain(self) -> None:
        deadline = time.monotonic() + _DRAIN
        while left := {one: status for one, status in (await self._states()).items() if not _ended(status)}:
            if time.monotonic() > deadline:
                logs = "\n".join(machine.tail() for machine in self._machines)
                raise Violation(f"{len(left)} workflows are stuck: {left}\n{logs}")
            await asyncio.sleep(_LOOK)

    async def _check(self, url: str) -> None:
        self.tally.workflows = len(self._ids)
        pushed = set(plain_git(self._remote.folder, "for-each-ref", "--format=%(objectname)", "refs/kingdom/").split())
        held = await holders(url)
        for workflow_id in self._ids:
            await self._check_workflow(self._parts, workflow_id, pushed, held)
        self._check_overlaps()
        for machine in self._machines:
            machine.kill_engine()
        await asyncio.sleep(LEASE)
        if left := {machine.folder.name: pids for machine in self._machines if (pids := machine.space.pids())}:
            raise Violation(f"processes are left on machines whose engines are gone: {left}")

    async def _check_workflow(
        self, parts: WorkflowContext, workflow_id: str, pushed: set[str], held: dict[str, str]
    ) -> None:
        async with parts.store.reading() as tx:
            workflow = await tx.workflows.get(workflow_id)
            works = await tx.works.of_workflow(workflow_id)
            points = [point for point in await tx.checkpoints.of_workflow(workflow_id) if point.valid]
        events = await parts.store.events(workflow_id, 0, 10_000)
        if workflow.status is not WorkflowStatus.COMPLETED:
            raise Violation(f"{workflow_id} is {workflow.status}: {workflow.reason}")
        if [event.sequence for event in events] != list(range(1, len(events) + 1)):
            raise Violation(f"the events of {workflow_id} have gaps")
        if Counter(event.type for event in events)["WorkflowCompleted"] != 1:
            raise Violation(f"{workflow_id} was not completed once")
        if sorted(point.work_id for point in points) != sorted(work.id for work in works):
            raise Violation(f"{workflow_id} has not one checkpoint for each Work: {points}")
        if lost := [point.id for point in points if not pushed.issuperset(point.hashes.values())]:
            raise Violation(f"checkpoints of {workflow_id} are not on the remote: {lost}")
        last = max(points, key=lambda point: point.number).hashes["git-1"]
        for name in _WORKS:
            text = plain_git(self._remote.folder, "show", f"{last}:{name}.txt")
            if text != name:
                raise Violation(f"{name} of {workflow_id} left {text!r}")
        if workflow_id not in held:
            raise Violation(f"nobody holds {workflow_id}")
        self.tally.moved += sum(event.type == "WorkflowPaused" for event in events)

    def _check_overlaps(self) -> None:
        """Two agents at one Work are a violation, unless one was frozen and could not see yet that it must stop."""
        for note in self._locks.glob("*.two"):
            for line in note.read_text().splitlines():
                at = float(line.split()[1])
                if not any(since <= at <= until + _THAW for since, until in self._faults.frozen):
                    raise Violation(f"two agents were at one Work: {note.name} {line}")


def _ended(status: WorkflowStatus) -> bool:
    return status in (WorkflowStatus.COMPLETED, WorkflowStatus.FAILED, WorkflowStatus.PAUSED, WorkflowStatus.CANCELLED)
