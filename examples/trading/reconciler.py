"""Finds out what became of attempts nobody got an answer for.

"The exchange does not know the order" is not enough to send another: the request may still be under way. So the
identifier is voided first; after that the old request can arrive whenever it likes and is refused. An exchange that
cannot void an identifier needs patience instead: a ``reconcile_after`` longer than its own limit for a request.
"""

from __future__ import annotations

from examples.trading.exchange_client import ExchangeClient
from examples.trading.orders import accept, never_arrived
from examples.trading.states import Status
from examples.trading.store import Database, lock_attempt, read_attempt
from kingdom.bus import Envelope, EventBus


class Reconciler:
    """Handles ``ReconcileOrderAttempt``. An exchange that does not answer raises, and the bus tries again later."""

    def __init__(self, bus: EventBus, database: Database, exchange: ExchangeClient) -> None:
        self._bus = bus
        self._database = database
        self._exchange = exchange

    async def reconcile(self, event: Envelope) -> None:
        """Turn UNKNOWN into ACKED, or into REJECTED with a new attempt."""
        attempt_id: int = event.payload["orderAttemptId"]
        async with self._database.transaction() as conn:
            attempt = await read_attempt(conn, attempt_id)
        if attempt is None or attempt.status is not Status.UNKNOWN:
            return
        order_id = await self._exchange.find(attempt.identifier)
        if order_id is None:
            order_id = await self._exchange.void(attempt.identifier)
        async with self._database.transaction() as conn:
            attempt = await lock_attempt(conn, attempt_id)
            if attempt is None or attempt.status is not Status.UNKNOWN:
                return  # a late answer, or another reconciler, came first; what the exchange told us still holds
            if order_id is not None:
                await accept(conn, self._bus, attempt, order_id, "found by the reconciler")
            else:
                await never_arrived(conn, self._bus, attempt)
