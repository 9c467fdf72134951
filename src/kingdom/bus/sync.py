"""Publishing from synchronous code: Django, Flask, scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kingdom.bus.connecting import connect
from kingdom.bus.envelope import DEFAULT_MAX_BYTES
from kingdom.bus.errors import InvalidOption, TransactionMismatch
from kingdom.bus.eventbus import unique_envelopes
from kingdom.bus.names import check_stream
from kingdom.bus.outbox import insert_statement
from kingdom.bus.tx import adopt

if TYPE_CHECKING:
    from kingdom.bus.envelope import Envelope


def publish_sync(
    stream: str,
    *envelopes: Envelope | Iterable[Envelope],
    tx: Any | None = None,
    url: str | None = None,
    schema: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> list[str]:
    """Publish from synchronous code; return the ids accepted now.

    With ``tx`` (psycopg, sqlite3, or SQLAlchemy's Session or Connection) the events join that transaction; ``schema``
    names the PostgreSQL schema of the bus when it is not on the search path. With ``url`` instead, they are published
    by themselves and durable on return; that opens a connection for each call, so it is for scripts.
    """
    check_stream(stream)
    unique = unique_envelopes(envelopes)
    if (tx is None) == (url is None):
        raise InvalidOption("publish_sync takes either tx= (your open transaction) or url= (the bus), one of them")
    if not unique:
        return []
    if url is not None:
        return asyncio.run(_publish_at(url, stream, unique, max_bytes))
    transaction = adopt(tx)
    if transaction.run_sync is None:
        raise TransactionMismatch("publish_sync needs a synchronous transaction; use `await bus.publish(…, tx=…)`")
    sql, params = insert_statement(transaction.dialect, stream, unique, max_bytes, schema)
    return [row[0] for row in transaction.run_sync(sql, params)]


async def _publish_at(url: str, stream: str, envelopes: list[Envelope], max_bytes: int) -> list[str]:
    async with connect(url, max_bytes=max_bytes) as bus:
        return await bus.publish(stream, envelopes)
