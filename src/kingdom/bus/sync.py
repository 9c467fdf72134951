"""Publishing from synchronous code: Django, Flask, scripts."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.connecting import connect
from kingdom.bus.envelope import DEFAULT_MAX_BYTES
from kingdom.bus.errors import InvalidOption, TransactionMismatch
from kingdom.bus.eventbus import EventBus, unique_envelopes
from kingdom.bus.names import check_stream
from kingdom.bus.outbox import insert_statement
from kingdom.bus.transport import DirectTransport
from kingdom.bus.tx import adopt

if TYPE_CHECKING:
    from kingdom.bus.envelope import Envelope

_MOST: Final = 16  # stores that are kept open


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
    by themselves and durable on return: on SQLite in this thread, over a connection that stays open for the next call;
    elsewhere each call connects anew, which suits scripts.
    """
    check_stream(stream)
    unique = unique_envelopes(envelopes)
    if (tx is None) == (url is None):
        raise InvalidOption("publish_sync takes either tx= (your open transaction) or url= (the bus), one of them")
    if not unique:
        return []
    if url is not None:
        place = _kept.find(url, max_bytes)
        if isinstance(place, EventBus):
            return asyncio.run(_publish_at(place, stream, unique))
        return place.publish_now(stream, unique)
    transaction = adopt(tx)
    if transaction.run_sync is None:
        raise TransactionMismatch("publish_sync needs a synchronous transaction; use `await bus.publish(…, tx=…)`")
    sql, params = insert_statement(transaction.dialect, stream, unique, max_bytes, schema)
    return [row[0] for row in transaction.run_sync(sql, params)]


async def _publish_at(bus: EventBus, stream: str, envelopes: list[Envelope]) -> list[str]:
    async with bus:
        return await bus.publish(stream, envelopes)


class _Kept:
    """Transports that serve synchronous callers in their thread, open from one call to the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int, str], DirectTransport] = {}
        self._inherited: list[object] = []

    def find(self, url: str, max_bytes: int) -> DirectTransport | EventBus:
        """What to publish through: a transport that stays open, or a bus for this one call."""
        text = str(url)
        # A relative path means another file in another working directory.
        key = text, max_bytes, "" if ":///" in text else str(Path.cwd())
        if found := self._kept.get(key):
            return found
        bus = connect(url, max_bytes=max_bytes)
        if not isinstance(bus.transport, DirectTransport):
            return bus
        with self._lock:
            while len(self._kept) >= _MOST:
                self._kept.pop(next(iter(self._kept))).close_now()
            return self._kept.setdefault(key, bus.transport)

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            for transport in self._kept.values():
                transport.close_now()
            self._kept.clear()

    def forget(self) -> None:
        """In a forked process: what the parent opened is neither used nor closed here, it is still the parent's."""
        self._inherited.append(self._kept)
        self._lock, self._kept = threading.Lock(), {}


_kept = _Kept()
os.register_at_fork(after_in_child=_kept.forget)
atexit.register(_kept.close)
