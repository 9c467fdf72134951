"""A connection that writes: how it is made, how it waits for its turn, and when it is given up."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from typing import Final, TypeVar

from kingdom.bus.transports.sqlite._errors import must_reconnect
from kingdom.bus.transports.sqlite._store import Store

T = TypeVar("T")
_SHORTEST_PAUSE: Final = 0.0001  # seconds between two tries to get the write lock
_LONGEST_PAUSE: Final = 0.005


class WriteConnection:
    """Made when it is first needed, and anew after an error that it cannot be trusted after."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: sqlite3.Connection | None = None

    def get(self) -> sqlite3.Connection:
        """The connection; what waits for the write lock on it is up to :meth:`patiently`."""
        if self._connection is None:
            self._connection = self._store.connect()
            self._connection.execute("PRAGMA busy_timeout = 0")
        return self._connection

    def begin(self) -> sqlite3.Connection:
        """The connection with the write lock taken."""
        connection = self.get()
        self.patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        return connection

    def patiently(self, step: Callable[[], T]) -> T:
        """Do what needs the write lock, again and again while others hold it.

        SQLite's own way of waiting sleeps for 1 to 100 ms, when most commits end much sooner.
        """
        deadline = time.monotonic() + self._store.patience
        pause = _SHORTEST_PAUSE
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE, 1.5 * pause)

    def roll_back(self, error: BaseException) -> None:
        """Undo what an error left, so that the next transaction can begin."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()
        if must_reconnect(error):
            self.close()

    def close(self) -> None:
        """Disconnect. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
