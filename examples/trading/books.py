"""Queries: the outcome of each intent, and whether everything is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from examples.trading.store import Connection, Database
from kingdom.bus import EventBus


class IntentBook(NamedTuple):
    """One intent: the states of each of its attempts, and the last one's current state."""

    intent_id: int
    paths: list[str]
    status: str
    identifier: str
    exchange_order_id: str | None


_INTENTS = """
    SELECT a.order_intent_id,
           array_agg(h.path ORDER BY a.attempt_no),
           (array_agg(a.status ORDER BY a.attempt_no DESC))[1],
           (array_agg(a.identifier ORDER BY a.attempt_no DESC))[1],
           (array_agg(a.exchange_order_id ORDER BY a.attempt_no DESC))[1]
    FROM order_attempt a
    CROSS JOIN LATERAL (
        SELECT string_agg(status, ' ' ORDER BY id) AS path FROM order_attempt_history WHERE order_attempt_id = a.id
    ) h
    GROUP BY a.order_intent_id
    ORDER BY a.order_intent_id
"""


async def read_intents(conn: Connection) -> list[IntentBook]:
    """Return all intents, ordered by id."""
    cursor = await conn.execute(_INTENTS)
    return [IntentBook(*row) for row in await cursor.fetchall()]


async def is_settled(buses: Iterable[EventBus], database: Database) -> bool:
    """Return whether every intent has ended and no stream has pending or held events."""
    for bus in dict.fromkeys(buses):  # in the order in which events pass them; often it is one
        depth = await bus.depth()
        if any(found.pending or found.processing for found in depth.values()):
            return False
    async with database.transaction() as conn:
        return all(book.status in ("ACKED", "REJECTED") for book in await read_intents(conn))


async def until(condition: Callable[[], Awaitable[bool]], *, within: float) -> None:
    """Wait until a condition holds; raises ``TimeoutError`` when that takes longer than ``within`` seconds."""
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - it becomes true in other processes
            await asyncio.sleep(0.05)
