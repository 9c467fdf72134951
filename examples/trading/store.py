"""The tables of the domain, through psycopg. An attempt changes only as its state machine allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row

from examples.trading.states import Status, check_transition

SCHEMA: Final = Path(__file__).with_name("schema.sql")

Connection = AsyncConnection[Any]


class Database:
    """A small pool of connections, each used for one transaction at a time."""

    def __init__(self, url: str, *, size: int = 4) -> None:
        self.url = url
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(size)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Open a transaction for the length of the block; commit at its end, roll back on an exception."""
        async with self._slots:
            # Autocommit: nothing is open outside the block, so no connection sits idle in a transaction.
            connection = self._idle.pop() if self._idle else await AsyncConnection.connect(self.url, autocommit=True)
            try:
                async with connection.transaction():
                    yield connection
            finally:
                if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def create_tables(self) -> None:
        """Run ``schema.sql``."""
        async with self.transaction() as conn:
            await conn.execute(SCHEMA.read_bytes())


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to place an order, with the data of its intent and signal."""

    id: int
    order_intent_id: int
    attempt_no: int
    identifier: str
    status: Status
    market: str
    side: str
    price: Decimal
    volume: Decimal
    strategy_key: str
    trace_id: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status(self.status))


_SELECT: Final = """
    SELECT a.id, a.order_intent_id, a.attempt_no, a.identifier, a.status,
           s.market, s.side, s.price, i.volume, s.strategy_key, i.trace_id
    FROM order_attempt a
    JOIN order_intent i ON i.id = a.order_intent_id
    JOIN signal s ON s.id = i.signal_id
"""


async def read_attempt(conn: Connection, attempt_id: int) -> Attempt | None:
    """Read the current state of an attempt."""
    return await _one(conn, _SELECT + "WHERE a.id = %s", attempt_id)


async def lock_attempt(conn: Connection, attempt_id: int) -> Attempt | None:
    """Read an attempt and lock it until the transaction ends."""
    return await _one(conn, _SELECT + "WHERE a.id = %s FOR UPDATE OF a", attempt_id)


async def lock_attempts(conn: Connection, status: Status) -> list[Attempt]:
    """Read and lock all attempts in one state, ordered by id, so that two callers cannot deadlock."""
    cursor = conn.cursor(row_factory=class_row(Attempt))
    await cursor.execute(_SELECT + "WHERE a.status = %s ORDER BY a.id FOR UPDATE OF a", (status,))
    return await cursor.fetchall()


async def add_attempt(conn: Connection, intent_id: int, attempt_no: int, reason: str) -> Attempt:
    """Insert an attempt in PREPARED, with a unique identifier.

    The identifier is made of the intent and the number: inserting the same attempt twice, even from two processes,
    violates the UNIQUE constraints instead of making two orders.
    """
    cursor = await conn.execute(
        "INSERT INTO order_attempt (order_intent_id, attempt_no, identifier) VALUES (%s, %s, %s) RETURNING id",
        (intent_id, attempt_no, f"everbit-{intent_id}-{attempt_no}"),
    )
    row = await cursor.fetchone()
    assert row is not None
    await _record_history(conn, row[0], Status.PREPARED, reason)
    attempt = await read_attempt(conn, row[0])
    assert attempt is not None
    return attempt


async def move(
    conn: Connection, attempt: Attempt, wanted: Status, reason: str, exchange_order_id: str | None = None
) -> None:
    """Change the state of a locked attempt, or raise ``IllegalTransition``."""
    check_transition(attempt.id, attempt.status, wanted)
    await conn.execute(
        "UPDATE order_attempt SET status = %s, updated_at = now(), "
        "exchange_order_id = coalesce(%s, exchange_order_id) WHERE id = %s",
        (wanted, exchange_order_id, attempt.id),
    )
    await _record_history(conn, attempt.id, wanted, reason)


async def _record_history(conn: Connection, attempt_id: int, status: Status, reason: str) -> None:
    await conn.execute(
        "INSERT INTO order_attempt_history (order_attempt_id, status, reason) VALUES (%s, %s, %s)",
        (attempt_id, status, reason),
    )


async def _one(conn: Connection, query: str, attempt_id: int) -> Attempt | None:
    cursor = conn.cursor(row_factory=class_row(Attempt))
    await cursor.execute(query, (attempt_id,))
    return await cursor.fetchone()
