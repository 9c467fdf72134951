"""Publishing in the thread of a caller that has no event loop."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kingdom.bus.transports.sqlite._errors import not_set_up, translate
from kingdom.bus.transports.sqlite._write_connection import WriteConnection

if TYPE_CHECKING:
    from kingdom.bus.transports.sqlite._publish import Publish
    from kingdom.bus.transports.sqlite._store import Store


class Direct:
    """A connection that stays open between calls; threads take turns."""

    def __init__(self, store: Store) -> None:
        self._path = Path(store.path)
        self._lock = threading.Lock()
        self._connection = WriteConnection(store)
        self._file: tuple[int, int] | None = None  # what the connection is to

    def publish(self, publish: Publish) -> list[str]:
        """Publish, durable on return."""
        with self._lock:
            self._look_at_the_file()
            try:
                if len(publish.rows) == 1:  # one statement is a transaction by itself
                    connection = self._connection.get()
                    return self._connection.patiently(lambda: publish(connection))
                connection = self._connection.begin()
                accepted = publish(connection)
                connection.execute("COMMIT")
            except BaseException as error:  # an interrupt, too, must not leave the file locked
                self._connection.roll_back(error)
                if isinstance(error, sqlite3.Error):
                    raise translate(error, str(self._path)) from error
                raise
            return accepted

    def close(self) -> None:
        """Disconnect. Safe to call twice."""
        with self._lock:
            self._connection.close()

    def _look_at_the_file(self) -> None:
        """Connect anew when another file lies there than before: a call must not publish into one that is gone."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._connection.close()
            raise not_set_up(str(self._path), "does not exist yet") from None
        if self._file != (file := (found.st_dev, found.st_ino)):
            self._connection.close()
            self._file = file
