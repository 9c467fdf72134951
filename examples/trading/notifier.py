"""Pushes every event to the owner's phone, and none twice.

A push is sent before it is recorded. In the other order, a notifier that dies in between would lose the push silently.
In this order it repeats the push, and the push server drops the repetition by the event's id (``Idempotency-Key``).
With a push server that has no such key, choose between the two; a notification seen twice is usually better than none.

The mark in the ``Inbox`` and the row in ``notification_log`` are written in one transaction: a marked event has a row.
"""

from __future__ import annotations

from examples.trading import events
from examples.trading.httpio import send
from examples.trading.store import Database
from kingdom.bus import Envelope, Inbox


class PushError(ConnectionError):
    """The push server did not accept a notification; the bus retries later."""


class Notifier:
    """Handles ``OrderAccepted``, ``OrderRejected`` and ``BacktestFinished``."""

    def __init__(self, database: Database, push_url: str, *, timeout: float = 5.0) -> None:
        self._database = database
        self._url = f"{push_url}/push"
        self._timeout = timeout
        self._inbox = Inbox("notifier")

    async def notify(self, event: Envelope) -> None:
        """Push an event, unless it has been pushed."""
        async with self._database.transaction() as conn:
            cursor = await conn.execute("SELECT 1 FROM notification_log WHERE event_id = %s", (event.event_id,))
            if await cursor.fetchone():
                return
        message = describe(event)
        await self._push(event, message)
        async with self._database.transaction() as conn:
            if await self._inbox.first(event, tx=conn):
                await conn.execute(
                    "INSERT INTO notification_log (event_id, event_type, message) VALUES (%s, %s, %s)",
                    (event.event_id, event.type, message),
                )

    async def _push(self, event: Envelope, message: str) -> None:
        body = {"type": event.type, "message": message, **event.payload}
        key = {"Idempotency-Key": event.event_id}
        try:
            response = await send("POST", self._url, body, headers=key, within=self._timeout)
        except OSError as error:
            raise PushError(f"push {event.event_id}: {error or type(error).__name__}") from error
        if not 200 <= response.status < 300:
            raise PushError(f"push {event.event_id}: the push server answered {response.status}")


def describe(event: Envelope) -> str:
    """Return the text of the notification."""
    payload, market = event.payload, event.attributes.get("market", "")
    match event.type:
        case events.ORDER_ACCEPTED:
            return f"{market}: order {payload['exchangeOrderId']} is in"
        case events.ORDER_REJECTED:
            return f"{market}: order refused ({payload['reason']})"
        case _:
            return f"{market}: backtest {payload['backtestId']} ended at {payload['profit']:+.1%}"
