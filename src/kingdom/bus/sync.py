"""Publishing from synchronous code: Django, Flask, scripts."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.background import Background, LoopThread
from kingdom.bus.connecting import connect
from kingdom.bus.envelope import DEFAULT_MAX_BYTES
from kingdom.bus.errors import InvalidOption, TransactionMismatch
from kingdom.bus.eventbus import unique_envelopes
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
    by themselves and durable on return. What that needs stays open for the next call: on SQLite and files in this
    thread, elsewhere in the event loop of a thread of its own.
    """
    check_stream(stream)
    unique = unique_envelopes(envelopes)
    if (tx is None) == (url is None):
        raise InvalidOption("publish_sync takes either tx= (your open transaction) or url= (the bus), one of them")
    if not unique:
        return []
    if url is not None:
        return _kept.find(url, max_bytes).publish_now(stream, unique)
    transaction = adopt(tx)
    if transaction.run_sync is None:
        raise TransactionMismatch("publish_sync needs a synchronous transaction; use `await bus.publish(…, tx=…)`")
    sql, params = insert_statement(transaction.dialect, stream, unique, max_bytes, schema)
    return [row[0] for row in transaction.run_sync(sql, params)]


class _Kept:
    """What serves synchronous callers, open from one call to the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = LoopThread()
        self._kept: dict[tuple[str, int, str], DirectTransport] = {}
        self._inherited: list[object] = []

    def find(self, url: str, max_bytes: int) -> DirectTransport:
        """What to publish through."""
        text = str(url)
        # A relative path means another file in another working directory.
        absolute = "://" in text and "://." not in text
        key = text, max_bytes, "" if absolute else str(Path.cwd())
        if found := self._kept.get(key):
            return found
        made = partial(connect, url, max_bytes=max_bytes)
        transport = made().transport
        place = transport if isinstance(transport, DirectTransport) else Background(self._thread, made)
        with self._lock:
            while len(self._kept) >= _MOST:
                self._kept.pop(next(iter(self._kept))).close_now()
            return self._kept.setdefault(key, place)

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            for place in self._kept.values():
                place.close_now()
            self._kept.clear()
            self._thread.stop()

    def forget(self) -> None:
        """In a forked process: what the parent opened is neither used nor closed here, it is still the parent's."""
        self._inherited += [self._kept, self._thread]
        self._lock, self._thread, self._kept = threading.Lock(), LoopThread(), {}


_kept = _Kept()
os.register_at_fork(after_in_child=_kept.forget)
atexit.register(_kept.close)
