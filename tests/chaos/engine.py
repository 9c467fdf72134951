"""The random campaign: load, kills at random instants, and a reckoning after each round."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kingdom.bus import Envelope, Record, connect
from tests.chaos.checks import drained, verify
from tests.chaos.grounds import Ground, KafkaGround, PostgresGround, count_effects
from tests.chaos.processes import Member, Violation, wait_until
from tests.chaos.publisher import ORDERED, PLAIN, calls, read_promises
from tests.support.namespaces import clock_library, shifted_clock

LEASE: Final = 2.0  # seconds
WORKERS: Final = 3
PAUSED: Final = "chaos.paused"
_START: Final = 60.0  # seconds a process may take to be at work, on a machine busy with other things
_DRAIN: Final = 90.0
_CUTS: Final = 6  # of all connections to Kafka, in a round
_CALLS_AFTER: Final = 20  # calls of publish that must still return when the last blow has fallen


@dataclass
class Tally:
    """What was done to the bus, and what was checked."""

    kills: int = 0
    pauses: int = 0
    crashes: int = 0  # of the PostgreSQL server or the Kafka broker
    full_disks: int = 0  # of a Kafka broker
    cuts: int = 0  # of all connections at once
    backends: int = 0  # connections cut
    events: int = 0
    checks: int = 0

    @property
    def faults(self) -> int:
        """All of them."""
        return self.kills + self.pauses + self.crashes + self.full_disks + self.cuts

    def __str__(self) -> str:
        server = f", {self.crashes} server crashes" if self.crashes else ""
        server += f", {self.full_disks} full disks" if self.full_disks else ""
        server += f", {self.cuts} cuts of {self.backends} connections" if self.cuts else ""
        hit = f"{self.faults} faults ({self.kills} kills, {self.pauses} pauses{server})"
        return f"{hit}, {self.events} events, {self.checks} checks"


@dataclass
class Campaign:
    """Rounds of violence against one ground. ``tell`` gets a line per round."""

    ground: Ground
    folder: Path
    seed: int
    tell: Callable[[str], None] = print
    tally: Tally = field(default_factory=Tally)
    _round: int = 0
    _workers: list[Member] = field(default_factory=list)
    _started: list[Member] = field(default_factory=list)
    _promised: list[tuple[str, Envelope]] = field(default_factory=list)  # every event, with its stream

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.seed}/{self.ground.transport}")
        self._logs = self.folder / "logs"
        self._logs.mkdir(exist_ok=True)
        # With servers, their clock is the one that counts; elsewhere, all processes have the same.
        shifted = isinstance(self.ground, PostgresGround | KafkaGround) and shutil.which("cc") is not None
        self._clock_library = clock_library(self.folder) if shifted else None

    def run(self, kills: int, *, per_round: int = 10) -> Tally:
        """Kill ``kills`` processes, ``per_round`` in each round; pauses and server crashes come in between."""
        try:
            asyncio.run(self._set_up())
            self._workers = [self._worker(f"worker-{number}", [PLAIN, ORDERED]) for number in range(1, WORKERS + 1)]
            for number in range((kills + per_round - 1) // per_round):
                self._kill_round(min(per_round, kills - self.tally.kills))
                if number % 5 == 0:
                    self._pause_round()
                    if isinstance(self.ground, PostgresGround):
                        self._outage_round(self.ground)
                    if isinstance(self.ground, KafkaGround):
                        self._broker_round(self.ground.crash, "broker killed")
                        self.tally.crashes += 1
                        if self.ground.has_disks:
                            self._broker_round(self.ground.fill_disk, "disk of a broker full")
                            self.tally.full_disks += 1
                        self._cut_round(self.ground)
            for worker in self._workers:
                worker.stop()
            self._reckon("all over, everything once more", self._promised)
        finally:
            for member in self._started:
                member.end()
        return self.tally

    # ── rounds ────────────────────────────────────────────────────────────────────────────────────────────────

    def _kill_round(self, kills: int) -> None:
        """Publisher and workers at work; one of them at a time is killed and started again at once.

        In the middle of it one worker is stopped, wherever it happens to be, and goes on when its leases are over.
        """
        publisher = self._publisher()
        members = [publisher, *self._workers]
        stop_at, sleeper = self._rng.randrange(kills), self._rng.choice(self._workers)
        for number in range(kills):
            if number == stop_at:
                wait_until(sleeper.is_ready, f"{sleeper.name} to be ready", _START, members)
                sleeper.send(signal.SIGSTOP)
                woken_at = time.monotonic() + 1.2 * LEASE
            victim = self._rng.choice([member for member in members if member is not sleeper])
            if self._rng.random() < 0.9:  # else: hit it while it starts
                wait_until(victim.is_ready, f"{victim.name} to be ready", _START, members)
            time.sleep(self._rng.uniform(0, 0.3))
            for member in members:
                member.check_alive()
            victim.kill()
            victim.start()
            self.tally.kills += 1
        time.sleep(max(0.0, woken_at - time.monotonic()))
        sleeper.send(signal.SIGCONT)
        self.tally.pauses += 1
        self._reckon(f"{kills} kills", self._end_of_load(publisher))

    def _outage_round(self, ground: PostgresGround) -> None:
        """The server crashes and connections are cut; no process of ours is touched, and none may end."""
        publisher = self._publisher()
        members = [publisher, *self._workers]
        for member in members:
            wait_until(member.is_ready, f"{member.name} to be ready", _START, members)
        for blow in self._rng.sample([self._cut(ground.terminate_backends)] * 2 + [self._crash(ground)], 3):
            time.sleep(self._rng.uniform(0.1, 0.6))
            blow()
            for member in members:
                member.check_alive()
        self._reckon("server crashed, connections cut", self._end_of_load(publisher))
        for member in self._workers:
            member.check_alive()  # never started anew in this round: whoever lives now lived through it

    def _broker_round(self, blow: Callable[[], None], what: str) -> None:
        """A broker is killed, or has no room, and starts again; no process of ours is touched, and none may end."""
        publisher = self._publisher()
        members = [publisher, *self._workers]
        for member in members:
            wait_until(member.is_ready, f"{member.name} to be ready", _START, members)
        time.sleep(self._rng.uniform(0.1, 0.6))
        blow()
        for member in members:
            member.check_alive()
        self._reckon(what, self._end_of_load(publisher))
        for member in self._workers:
            member.check_alive()

    def _cut_round(self, ground: KafkaGround) -> None:
        """Connections are cut, and a worker joins and leaves: its shards move twice. No other process may end."""
        publisher = self._publisher()
        members = [publisher, *self._workers]
        for member in members:
            wait_until(member.is_ready, f"{member.name} to be ready", _START, members)
        guest: Member | None = None
        for number in range(_CUTS):
            time.sleep(self._rng.uniform(0.1, 1.0))
            self._cut(ground.cut)()
            if number == 0:
                guest = self._worker(f"guest-{self._round}", [PLAIN, ORDERED])
            elif guest is not None and number == _CUTS - 2:
                wait_until(guest.is_ready, "the guest to be ready", _START, members)
                guest.stop()
            for member in members:
                member.check_alive()
        self._reckon("connections cut, shards moved", self._end_of_load(publisher))
        for member in self._workers:
            member.check_alive()

    def _crash(self, ground: PostgresGround) -> Callable[[], None]:
        def crash() -> None:
            ground.server.crash()
            self.tally.crashes += 1

        return crash

    def _cut(self, all_connections: Callable[[], int]) -> Callable[[], None]:
        def cut() -> None:
            self.tally.backends += all_connections()
            self.tally.cuts += 1

        return cut

    def _pause_round(self) -> None:
        """A worker is stopped past its lease while it holds an event; another finishes it; the first one wakes."""
        self._round += 1
        event = Envelope(type="Plain", event_id=f"r{self._round:03d}-paused")
        sleeper = self._worker(f"sleeper-{self._round}", [PAUSED], hold=0.3)
        wait_until(sleeper.is_ready, "the sleeper to be ready", _START, [sleeper])
        asyncio.run(self._publish(event))
        wait_until(lambda: sleeper.said(f"holding {event.event_id}"), "the sleeper to hold", _START, [sleeper])
        sleeper.send(signal.SIGSTOP)
        relief = self._worker(f"relief-{self._round}", [PAUSED])
        wait_until(lambda: self._find(event).status == "DONE", "the relief to finish the event", _DRAIN, [relief])
        done = self._find(event)
        sleeper.send(signal.SIGCONT)
        wait_until(lambda: "lease lost" in sleeper.log.read_text(), "the sleeper to be refused", _DRAIN, [sleeper])
        sleeper.stop()
        relief.stop()
        if (after := self._find(event)) != done or after.attempts != 2:
            raise Violation(f"a worker that lost its lease changed the event: {done} became {after}")
        effects = count_effects(self.ground.effects())[event.event_id]
        if effects != 1 and (self.ground.exactly_once or effects != 2):
            raise Violation(f"{event.event_id}: {effects} effects")
        self.tally.pauses += 1
        self.tally.events += 1
        self._line("paused past its lease, refused", 3)

    # ── parts of a round ──────────────────────────────────────────────────────────────────────────────────────

    def _publisher(self) -> Member:
        self._round += 1
        self._acks = self.folder / f"acks-{self._round}"
        told = [f"--url={self.ground.url}", f"--round={self._round}", f"--seed={self.seed}", f"--acks={self._acks}"]
        return self._member(f"publisher-{self._round}", "publisher", told)

    def _worker(self, name: str, streams: list[str], hold: float = 0.0) -> Member:
        told = [f"--url={self.ground.url}", f"--lease={LEASE}", f"--hold={hold}", "--streams", *streams]
        return self._member(name, "worker", told)

    def _member(self, name: str, module: str, told: list[str]) -> Member:
        member = Member(name, module, told, self._logs, self._clock())
        self._started.append(member)
        member.start()
        return member

    def _clock(self) -> dict[str, str]:
        """Have the clock of a process be hours off, sometimes."""
        if self._clock_library is None or self._rng.random() < 0.5:
            return {}
        return shifted_clock(self._clock_library, self._rng.choice((-1, 1)) * self._rng.randrange(3600, 5 * 3600))

    def _end_of_load(self, publisher: Member) -> list[tuple[str, Envelope]]:
        """See that publishing goes on after the violence, then end it; returns what was promised in this round."""
        enough = len(read_promises(self._acks)) + _CALLS_AFTER
        wait_until(lambda: len(read_promises(self._acks)) >= enough, "more to be published", _START, [publisher])
        publisher.stop()
        promised = []
        for (stream, envelopes), ids in zip(calls(self._round, self.seed), read_promises(self._acks), strict=False):
            if [item.event_id for item in envelopes] != ids:
                raise Violation(f"the publisher wrote down {ids}, not the call {[item.event_id for item in envelopes]}")
            promised += [(stream, item) for item in envelopes]
        self._promised += promised
        self.tally.events += len(promised)
        return promised

    def _reckon(self, what: str, promised: list[tuple[str, Envelope]]) -> None:
        asyncio.run(drained(self.ground, _DRAIN))
        self._line(what, asyncio.run(verify(self.ground, promised)))

    def _line(self, what: str, checks: int) -> None:
        self.tally.checks += checks
        self.tell(
            f"{self.ground.transport:<11} round {self._round:>3}  {what:<32} {self.tally.kills:>4} kills so far  "
            f"{self.tally.events:>6} events  {self.tally.checks:>7} checks ok"
        )

    async def _set_up(self) -> None:
        async with connect(self.ground.url) as bus:
            await bus.setup()
            await bus.declare(ORDERED, ordered=True)
        await asyncio.to_thread(self.ground.prepare)

    async def _publish(self, event: Envelope) -> None:
        async with connect(self.ground.url) as bus:
            await bus.publish(PAUSED, event)

    def _find(self, event: Envelope) -> Record:
        async def find() -> Record:
            async with connect(self.ground.url) as bus:
                record = await bus.find(event.event_id)
                if record is None:
                    raise Violation(f"{event.event_id} was published and is gone")
                return record

        return asyncio.run(find())
