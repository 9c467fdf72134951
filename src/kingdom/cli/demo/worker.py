"""One worker process of the bus demo: ``python -m kingdom.cli.demo.worker URL LEDGER NAME``.

It ends when its standard input does, so that it never outlives the demo.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Final, Self

from kingdom.bus import Delivery, Envelope, Inbox, Worker, connect, current_delivery, logs

STREAM: Final = "demo.orders"
EVENT_TYPE: Final = "OrderPlaced"
LEASE_SECONDS: Final = 2.0  # short, so that the events of the killed worker are soon claimable again
_WORK_SECONDS: Final = 0.15  # that one event takes

# No UNIQUE on purpose: an effect that happened twice must be countable.
_TABLES = """
CREATE TABLE IF NOT EXISTS delivery (event_id TEXT NOT NULL, worker TEXT NOT NULL, attempt INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS effect (event_id TEXT NOT NULL, worker TEXT NOT NULL);
"""


class DemoLedger:
    """The database of the application: what was delivered, and what took effect."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=10, isolation_level="IMMEDIATE")
        self._inbox = Inbox("demo")

    @classmethod
    async def create(cls, path: Path) -> Self:
        """Create the database, with the inbox table next to the tables of the application."""
        async with connect(f"sqlite://{path}") as bus:
            await bus.setup()
        ledger = cls(path)
        ledger._connection.executescript(_TABLES)
        return ledger

    def handle(self, delivery: Delivery, worker: str) -> None:
        """Record the delivery; then, once per event, let it take effect."""
        connection = self._connection
        with connection:
            connection.execute("INSERT INTO delivery VALUES (?, ?, ?)", (delivery.event_id, worker, delivery.attempt))
        with connection:  # the mark of the inbox and the effect commit together, or neither does
            if self._inbox.first_sync(delivery.envelope, tx=connection):
                connection.execute("INSERT INTO effect VALUES (?, ?)", (delivery.event_id, worker))

    def deliveries(self) -> Counter[str]:
        """Count the deliveries of each event."""
        return self._count("SELECT event_id, count(*) FROM delivery GROUP BY event_id")

    def effects(self) -> Counter[str]:
        """Count how often each event took effect."""
        return self._count("SELECT event_id, count(*) FROM effect GROUP BY event_id")

    def handled_by(self) -> Counter[str]:
        """Count the deliveries of each worker."""
        return self._count("SELECT worker, count(*) FROM delivery GROUP BY worker")

    def close(self) -> None:
        self._connection.close()

    def _count(self, query: str) -> Counter[str]:
        return Counter(dict(self._connection.execute(query).fetchall()))


async def work(url: str, ledger: DemoLedger, name: str) -> None:
    """Handle the events of the demo until standard input ends or SIGTERM arrives."""
    async with connect(url) as bus:
        worker = Worker(bus, STREAM, name=name, lease=LEASE_SECONDS, grace=LEASE_SECONDS, poll=0.2)

        @worker.on(EVENT_TYPE)
        async def handle(event: Envelope) -> None:
            # The effect comes first: a worker killed during the sleep leaves events that took effect but are not
            # finished. They are delivered again, and only the inbox prevents a second effect.
            ledger.handle(current_delivery(), name)
            await asyncio.sleep(_WORK_SECONDS)

        loop = asyncio.get_running_loop()

        def read() -> None:
            if not os.read(0, 1024):
                loop.remove_reader(0)
                worker.stop()

        loop.add_reader(0, read)
        await worker.run()


def main() -> None:
    """Run the worker named on the command line."""
    url, path, name = sys.argv[1:]
    logs.configure(json=True)
    ledger = DemoLedger(Path(path))
    try:
        asyncio.run(work(url, ledger, name))
    finally:
        ledger.close()


if __name__ == "__main__":
    main()
