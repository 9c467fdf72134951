"""The connection that only reads, so that looking never waits for writing."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kingdom.bus.errors import BusError
from kingdom.bus.transports.sqlite._errors import must_reconnect, translate
from kingdom.bus.transports.sqlite._store import Store

T = TypeVar("T")


class Reader:
    """A read connection in a thread of its own, both made when they are first needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kingdom-sqlite-reader")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``query`` on one snapshot of the database."""
        if self._closed:
            raise BusError(f"the bus at {self._store.path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._run, query)

    async def close(self) -> None:
        """Finish what is asked already, then disconnect. Safe to call twice."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._executor, self._disconnect)
            self._executor.shutdown(wait=False)

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._store.connect(readonly=True)
            self._connection.execute("BEGIN")
            try:
                return query(self._connection)
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if must_reconnect(error):
                self._disconnect()
            raise translate(error, self._store.path) from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
