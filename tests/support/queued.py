"""What lies in the queues of a court, past the bus: in files or in an SQLite database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from kingdom.court.home import Home
from kingdom.court.queues import STATES


def database(home: Home) -> Path:
    """Where it is, for a court whose queues are in one."""
    return home.root / "queue.db"


def lying(home: Home, stream: str) -> list[tuple[str, dict[str, Any]]]:
    """The documents of a queue, each with the state it is in, by id."""
    file = database(home)
    if not file.exists():
        while True:
            paths = sorted((home.queue / stream).glob("*/[!.]*.json"), key=lambda path: path.name)
            with contextlib.suppress(FileNotFoundError):  # a role moved one between the listing and the reading
                return [(path.parent.name, json.loads(path.read_bytes())) for path in paths]
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT status, outcome, payload_json FROM outbox_event WHERE stream = ? ORDER BY event_id", (stream,)
        ).fetchall()
    states = STATES[stream]
    return [
        (states[status], {**json.loads(text)["payload"], "status": outcome or states[status]})
        for status, outcome, text in rows
    ]


def forget(home: Home, stream: str, document_id: str) -> None:
    """Take a document out of a queue, as if it had never been there."""
    file = database(home)
    if not file.exists():
        (path,) = (home.queue / stream).glob(f"*/{document_id}.json")
        path.unlink()
        return
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM outbox_event WHERE stream = ? AND event_id = ?", (stream, document_id))
