"""What happens to machines: they die, freeze, lose their link or find it slow, and the database is restarted."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable

from tests.support.namespaces import Relay, Space
from tests.support.postgres import PostgresServer

Fault = Callable[[Space], Awaitable[None]]


class MachineFaults:
    """Faults of machines whose leases last ``lease`` seconds. Those ``for long`` outlast a lease."""

    def __init__(self, chance: random.Random, server: PostgresServer, relay: Relay, lease: float) -> None:
        self._chance = chance
        self._server = server
        self._relay = relay
        self.long = lease + 4.0
        self.frozen: list[tuple[float, float]] = []  # from when until when a machine was frozen

    def kinds(self) -> dict[str, Fault]:
        """All of them, by name."""
        return {
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
        since = time.time()
        space.send(signal.SIGSTOP)
        await asyncio.sleep(self.long)
        self.frozen.append((since, time.time()))
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

    async def _restart_database(self, space: Space) -> None:
        await asyncio.to_thread(self._server.stop)
        await asyncio.sleep(self._chance.uniform(0, 2))
        await asyncio.to_thread(self._server.start)
