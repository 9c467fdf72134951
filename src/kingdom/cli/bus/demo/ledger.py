"""The application's own database in the demo: what was delivered, and what took effect."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Self

from kingdom.bus import Delivery, Inbox, connect

# No UNIQUE on purpose: an effect that happened twice must be there to be counted.
_TABLES = """
CREATE TABLE IF NOT EXISTS delivery (event_id TEXT NOT NULL, worker TEXT NOT NULL, attempt INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS effect (event_id TEXT NOT NULL, worker TEXT NOT NULL);
"""


class Ledger:
    """Writes from the worker processes, and counts for the proof."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=10, isolation_level="IMMEDIATE")
        self._inbox = Inbox("demo")

    @classmethod
    async def create(cls, path: Path) -> Self:
        """Make the database, with the inbox table beside the application's own."""
        async with connect(f"sqlite://{path}") as bus:
            await bus.setup()
        ledger = cls(path)
        ledger._connection.executescript(_TABLES)
        return ledger

    def handle(self, delivery: Delivery, worker: str) -> None:
        """Write down that the event was delivered; then, once per event, let it take effect."""
        connection = self._connection
        with connection:
            connection.execute("INSERT INTO delivery VALUES (?, ?, ?)", (delivery.event_id, worker, delivery.attempt))
        with connection:  # the inbox's mark and the effect commit together, or neither does
            if self._inbox.first_sync(delivery.envelope, tx=connection):
                connection.execute("INSERT INTO effect VALUES (?, ?)", (delivery.event_id, worker))

    def deliveries(self) -> Counter[str]:
        """How often each event was handed to a handler."""
        return self._count("SELECT event_id, count(*) FROM delivery GROUP BY event_id")

    def effects(self) -> Counter[str]:
        """How often each event took effect."""
        return self._count("SELECT event_id, count(*) FROM effect GROUP BY event_id")

    def handled_by(self) -> Counter[str]:
        """How many deliveries each worker started."""
        return self._count("SELECT worker, count(*) FROM delivery GROUP BY worker")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _count(self, query: str) -> Counter[str]:
        return Counter(dict(self._connection.execute(query).fetchall()))
