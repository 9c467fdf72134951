"""What happens to machines: they die, freeze, lose their link or find it slow or lossy; the database is restarted.

The clocks of some are hours off, all the time.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kingdom.base.uptime import uptime
from tests.support.namespaces import Relay, Space, can_lose_packets, clock_library
from tests.support.postgres import PostgresServer

Fault = Callable[[Space], Awaitable[None]]
_HOUR: Final = 3600
_MAX_HOURS: Final = 5


@dataclass
class FaultTally:
    """What was done to machines."""

    faults: Counter[str] = field(default_factory=Counter)
    clocks: list[float] = field(default_factory=list)  # by how many hours each was off

    def __str__(self) -> str:
        hit = ", ".join(f"{count} × {name}" for name, count in sorted(self.faults.items()))
        clocks = ", ".join(f"{hours:+.1f}" for hours in self.clocks)
        return f"{self.faults.total()} faults ({hit}), clocks off by {clocks} hours"


class MachineFaults:
    """Faults of machines whose leases last ``lease`` seconds. Those ``for long`` outlast a lease."""

    def __init__(self, chance: random.Random, server: PostgresServer, relay: Relay, lease: float) -> None:
        self._chance = chance
        self._server = server
        self._relay = relay
        self.long = lease + 4.0
        self.frozen: list[tuple[float, float]] = []  # from when until when a machine was frozen, by uptime()

    def shift_clocks(self, spaces: Sequence[Space], folder: Path) -> list[float]:
        """Set the clocks of half of the machines wrong; return by how many hours each is off."""
        library, found = clock_library(folder), []
        wrong = self._chance.sample(range(len(spaces)), len(spaces) // 2)
        for number, space in enumerate(spaces):
            hours = self._chance.choice((-1, 1)) * self._chance.uniform(1, _MAX_HOURS) if number in wrong else 0.0
            if hours:
                space.shift_clock(library, round(hours * _HOUR))
            found.append(round(hours, 1))
        return found

    def kinds(self) -> dict[str, Fault]:
        """All of them, by name."""
        lossy: dict[str, Fault] = {"link lossy": self._lose} if can_lose_packets() else {}
        return lossy | {
            "machine killed": self._kill,
            "machine frozen": self._freeze,
            "link cut for long": self._cut_for_long,
            "link cut shortly": self._cut_shortly,
            "link slow": self._slow,
            "database restarted": self._restart_database,
        }

    async def _kill(self, space: Space) -> None:
        space.send(signal.SIGSTOP)  # so that none sees another die
        space.send(signal.SIGKILL)
        await asyncio.sleep(self._chance.uniform(0, self.long))

    async def _freeze(self, space: Space) -> None:
        since = uptime()
        space.send(signal.SIGSTOP)
        await asyncio.sleep(self.long)
        self.frozen.append((since, uptime()))
        space.send(signal.SIGCONT)

    async def _cut_for_long(self, space: Space) -> None:
        space.cut()
        await asyncio.sleep(self.long)
        space.mend()

    async def _cut_shortly(self, space: Space) -> None:
        space.cut()
        await asyncio.sleep(self._chance.uniform(0.1, 2))
        space.mend()

    async def _slow(self, space: Space) -> None:
        self._relay.slow[space.address] = 0.2
        await asyncio.sleep(self._chance.uniform(2, 10))
        del self._relay.slow[space.address]

    async def _lose(self, space: Space) -> None:
        space.lose(self._chance.choice((5, 20, 40)))
        await asyncio.sleep(self._chance.uniform(2, self.long))
        space.lose(0)

    async def _restart_database(self, space: Space) -> None:
        await asyncio.to_thread(self._server.stop)
        await asyncio.sleep(self._chance.uniform(0, 2))
        await asyncio.to_thread(self._server.start)
