"""Settles attempts that received no answer.

"The exchange does not know the order" is not enough to send another: the request may still be on its way. Therefore
the identifier is voided first; the old request is then refused whenever it arrives. For an exchange that cannot void an
identifier, set ``reconcile_after`` longer than its own limit for a request.
"""

from __future__ import annotations

from examples.trading.exchange_client import ExchangeClient
from examples.trading.orders import accept, never_arrived
from examples.trading.states import Status
from examples.trading.store import Database, lock_attempt, read_attempt
from kingdom.bus import Envelope, EventBus


class Reconciler:
    """Handles ``ReconcileOrderAttempt``. An exchange that does not answer raises, and the bus retries later."""

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
                return  # a late answer or another reconciler was first; the answer of the exchange is still true
            if order_id is not None:
                await accept(conn, self._bus, attempt, order_id, "found by the reconciler")
            else:
                await never_arrived(conn, self._bus, attempt)
