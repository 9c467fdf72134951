"""The campaign: a court at work is killed, as a whole or in part, and started again; at the end everything is counted.

A *kill* is ``kill -9`` of the supervisor and every role at once, in some rounds of every soldier as well. Between two
kills single roles and single soldiers die, too. What must hold in the end is in :mod:`tests.chaos.court.checks`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.court import checks
from tests.chaos.court.homes import Grounds
from tests.chaos.court.load import Load
from tests.chaos.grounds import restartable_server
from tests.chaos.processes import Violation
from tests.support.court_processes import CourtProcesses, wait_for
from tests.support.postgres import create_schema

_START: Final = 60.0  # seconds a court may take to be at work, on a machine busy with other things
_DRAIN: Final = 180.0  # seconds without any progress
_BACKLOG: Final = 40  # events under way, above which no more are put in
_ROLES: Final = ("king", "envoy", "gen-hand")


@dataclass
class Tally:
    """What was done to the court, and what it did."""

    kills: int = 0  # of everything at once,
    with_soldiers: int = 0  # and of those, with all soldiers
    while_starting: int = 0  # and before the roles were at work
    roles: int = 0  # killed alone
    soldiers: int = 0  # killed alone
    crashes: int = 0  # of the database
    events: int = 0
    hit: int = 0  # runs of soldiers that were killed
    checks: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills of everything ({self.with_soldiers} with soldiers, {self.while_starting} at the "
            f"start), {self.roles} of a role, {self.soldiers} of a soldier; {self.hit} runs cut off; "
            f"{f'{self.crashes} crashes of the database; ' * bool(self.crashes)}"
            f"{self.events} events, {self.checks:,} checks"
        )


class Database(NamedTuple):
    """Where the queues of a court are, if they are no files."""

    url: str
    crash: Callable[[], None] | None = None  # has its server end at once and start again


@contextmanager
def queues_on(transport: str, folder: Path) -> Iterator[Database | None]:
    """A database for the queues of a court, for as long as the context lasts; None: they are files."""
    if transport == "postgresql":
        with restartable_server() as server:
            yield Database(asyncio.run(create_schema(server.url, "court")), server.crash)
    else:
        yield Database(f"sqlite://{folder}/queues.db") if transport == "sqlite" else None


@dataclass
class CourtCampaign:
    """Rounds of violence against one court. ``tell`` gets a line every ten kills.

    ``queues``: the database they are in; None: they are files.
    """

    folder: Path
    seed: int
    tell: Callable[[str], None] = print
    queues: Database | None = None
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed}/court")
        self._grounds = Grounds(self.folder, self.queues.url if self.queues else None)
        self._load = Load(self._grounds, self._chance)
        self._processes = CourtProcesses(self._grounds.root, self.folder / "up.log")
        self._hit: set[str] = set()  # runs whose processes were killed

    def run(self, kills: int) -> Tally:
        """Kill everything so many times, with single kills in between; then let the court finish, and count."""
        self._grounds.make()
        try:
            self._load.feed(10)
            for number in range(1, kills + 1):
                self._round()
                if number % 10 == 0:
                    self.tell(f"court       {self.tally}")
            self._finish()
            self._reckon()
        finally:
            self._processes.kill_everything()
        return self.tally

    def _round(self) -> None:
        chance = self._chance
        self._processes.start()
        if chance.random() < 0.15:
            time.sleep(chance.uniform(0.2, 1.0))
            self.tally.while_starting += 1
        else:
            self._wait_for_roles()
            self._feed()
            if self.queues and self.queues.crash and chance.random() < 0.4:
                self.queues.crash()
                self.tally.crashes += 1
            if chance.random() < 0.4:
                time.sleep(chance.uniform(0, 0.3))
                self._kill_one()
            time.sleep(chance.uniform(0, 0.8))
        soldiers = chance.random() < 0.3
        self._strike(self._processes.kill_all(chance, soldiers=soldiers))
        self.tally.kills += 1
        self.tally.with_soldiers += soldiers
        self._object(checks.disagreements(self._grounds.queue()))
        if chance.random() < 0.3:
            self._feed()  # while nobody is there

    def _kill_one(self) -> None:
        """A role, or a soldier: its agent, its shim, or both."""
        roles = list(self._grounds.court.pids().values())
        if self._chance.random() < 0.6:
            victim = self._chance.choice(roles) if roles else None
            self._processes.kill_some([one for one in self._processes.court() if one.pid == victim])
            self.tally.roles += 1
        elif found := self._processes.soldiers():
            some = self._chance.sample(found, self._chance.randint(1, min(2, len(found))))
            self._strike(self._processes.kill_some(some))
            self.tally.soldiers += 1

    def _strike(self, hit: set[str]) -> None:
        self._hit |= hit
        self.tally.hit = len(self._hit)

    def _feed(self) -> None:
        under_way = len(self._load.all - self._load.completed())
        self._load.feed(self._chance.randint(2, 10) if under_way < _BACKLOG else 1)
        self.tally.events = len(self._load.events)
        self._load.speak()

    def _wait_for_roles(self) -> None:
        def at_work() -> bool:
            if self._processes.ended is not None:
                raise Violation(f"kingdom up ended by itself ({self._processes.ended}):\n{self._said()}")
            return self._processes.at_work(*_ROLES)

        if not wait_for(at_work, _START):
            raise Violation(f"the court is not at work after {_START:.0f} s:\n{self._said()}")

    def _finish(self) -> None:
        """Let the court do all there is to do, stop it the polite way, and have it cleaned up."""
        checks.make_old(checks.half_written(self._grounds.root))
        self._processes.start()
        self._wait_for_roles()
        left, since = -1, time.monotonic()
        while left:
            self._load.speak()
            time.sleep(0.2)
            messages = (self._grounds.queue() / "messages/pending").glob("*.json")
            now = len(self._load.all - self._load.completed()) + len(list(messages))
            if now != left:
                left, since = now, time.monotonic()
            elif time.monotonic() - since > _DRAIN:
                missing = self._load.all - self._load.completed()
                status = self._grounds.court.call("status").stdout
                raise Violation(f"{left} are stuck: {checks.shown(missing)}\n{status}\n{self._said()}")
        down = self._grounds.court.run("down")
        if down.returncode or self._processes.stop() != 0:
            raise Violation(f"kingdom down: {down.stdout}{down.stderr}\n{self._said()}")
        cleaned = self._grounds.court.call("clean", "--yes")
        if cleaned.returncode:
            raise Violation(f"kingdom clean: {cleaned.stdout}{cleaned.stderr}")

    def _reckon(self) -> None:
        root, load, effects = self._grounds.root, self._load, self._grounds.effects()
        queue = self._grounds.queue()
        journal, complaints = checks.read_journal(root)
        complaints += checks.disagreements(queue)
        complaints += checks.unfinished(queue, load.all)
        complaints += checks.wrong_results(root, queue, load.events, load.to_cancel)
        complaints += checks.repeated_effects(effects, load.events, self._hit)
        complaints += checks.undone(effects, root)
        complaints += checks.repeated_messages(root, queue, load.events, journal)
        complaints += checks.repeated_entries(journal)
        complaints += checks.wrong_runs(root)
        complaints += checks.left_behind(root)
        complaints += checks.doctor(root)
        complaints += [f"still there: {process}" for process in self._processes.left()]
        self._object(complaints)
        self.tally.checks += 12 * len(load.events)

    def _object(self, complaints: list[str]) -> None:
        if complaints:
            raise Violation("\n".join(complaints))

    def _said(self) -> str:
        """The end of what ``kingdom up`` printed."""
        return "\n".join((self.folder / "up.log").read_text(errors="replace").splitlines()[-25:])
