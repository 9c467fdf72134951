"""Idempotent consumption in one line.

Delivery is at least once, so an effect in a database must know whether it happened already. The inbox writes down
(consumer, event id) in the handler's own transaction: effect and mark commit together, or neither does. ::

    inbox = Inbox("push-sender")

    @worker.on("OrderAccepted")
    async def push(event: Envelope) -> None:
        async with pool.connection() as conn, conn.transaction():
            if await inbox.first(event, tx=conn):
                ...            # runs once per event, whatever is redelivered
"""

from __future__ import annotations

from typing import Any, Final

from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import TransactionMismatch
from kingdom.bus.names import check_worker
from kingdom.bus.outbox import qualified
from kingdom.bus.tx import adopt

# The same text on SQLite and PostgreSQL.
_INSERT: Final = (
    "INSERT INTO inbox_event (consumer, event_id) VALUES (:consumer, :event_id) "
    "ON CONFLICT (consumer, event_id) DO NOTHING RETURNING event_id"
)


class Inbox:
    """Which events one consumer has handled. The table is made by ``bus.setup()`` on SQLite and PostgreSQL.

    ``schema`` names the PostgreSQL schema of the bus when it is not on the transaction's search path.
    """

    def __init__(self, consumer: str, *, schema: str | None = None) -> None:
        self.consumer = check_worker(consumer)
        self._insert = qualified(_INSERT, schema)

    async def first(self, event: Envelope | str, *, tx: Any) -> bool:
        """Whether this consumer sees the event for the first time; marks it as seen in the transaction ``tx``."""
        transaction = adopt(tx)
        return bool(await transaction.run(self._insert, self._params(event)))

    def first_sync(self, event: Envelope | str, *, tx: Any) -> bool:
        """:meth:`first` for synchronous transactions."""
        transaction = adopt(tx)
        if transaction.run_sync is None:
            raise TransactionMismatch("first_sync needs a synchronous transaction; use `await inbox.first(…)`")
        return bool(transaction.run_sync(self._insert, self._params(event)))

    def _params(self, event: Envelope | str) -> dict[str, str]:
        return {"consumer": self.consumer, "event_id": event if isinstance(event, str) else event.event_id}
