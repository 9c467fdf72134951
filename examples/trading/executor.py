"""Executes commands: marks the attempt SENT, calls the exchange, records the answer. Two short transactions.

If the process dies before the first commit, nothing happened, and the command is delivered again. If it dies after it,
the redelivery finds SENT and cannot know whether the order was sent: the attempt becomes UNKNOWN, and the reconciler
asks the exchange. If it dies after the second, the redelivery finds a settled attempt and does nothing. An order is
never sent twice.
"""

from __future__ import annotations

from examples.trading.exchange_client import ExchangeClient
from examples.trading.orders import begin_sending, record_answer
from examples.trading.store import Database
from kingdom.bus import Envelope, EventBus


class Executor:
    """Handles ``CreateOrderAttempt``; an attempt without an answer is reconciled after ``reconcile_after`` seconds."""

    def __init__(
        self, bus: EventBus, database: Database, exchange: ExchangeClient, *, reconcile_after: float = 5.0
    ) -> None:
        self._bus = bus
        self._database = database
        self._exchange = exchange
        self._reconcile_after = reconcile_after

    async def execute(self, event: Envelope) -> None:
        """Send the order of an attempt, if this delivery is the one to send it."""
        attempt_id: int = event.payload["orderAttemptId"]
        async with self._database.transaction() as conn:
            attempt = await begin_sending(conn, self._bus, attempt_id, self._reconcile_after)
        if attempt is None:
            return
        answer = await self._exchange.place(attempt)  # outside any transaction: it may take seconds
        async with self._database.transaction() as conn:
            await record_answer(conn, self._bus, attempt_id, answer, self._reconcile_after)
