"""Synchronous code on both ends, as in Flask or Django: ``python -m examples.flask_like_sync``.

A view publishes with ``publish_sync`` in the request's own sqlite3 transaction. The worker's handler is a plain
function: the worker runs it in a thread, so it may block.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing

from kingdom.bus import Envelope, Inbox, Worker, connect, publish_sync


def sign_up(database: str, email: str) -> str:
    """The view: one transaction for the user and the event."""
    with closing(sqlite3.connect(database)) as connection, connection:  # commits, or rolls back on an error
        connection.execute("INSERT INTO user (email) VALUES (?)", (email,))
        publish_sync("users", Envelope(type="SignedUp", payload={"email": email}), tx=connection)
    return f"welcome, {email}"


async def run_worker(database: str, expected: int) -> None:
    """The worker process; in production a program of its own."""
    async with connect(f"sqlite://{database}") as bus:
        worker = Worker(bus, "users", name="mailer", concurrency=1)
        inbox = Inbox("mailer")

        @worker.on("SignedUp")
        def write_mail(event: Envelope) -> None:
            with closing(sqlite3.connect(database)) as connection, connection:
                if inbox.first_sync(event, tx=connection):  # False when the event is delivered a second time
                    connection.execute("INSERT INTO mail (recipient) VALUES (?)", (event.payload["email"],))
                count = connection.execute("SELECT count(*) FROM mail").fetchone()[0]
            if count == expected:
                worker.stop()

        await worker.run()


async def set_up(database: str) -> None:
    """Create the tables of the bus and of the application in one file."""
    async with connect(f"sqlite://{database}") as bus:
        await bus.setup()
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript("CREATE TABLE user (email TEXT); CREATE TABLE mail (recipient TEXT);")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/app.db"
        asyncio.run(set_up(path))
        print(sign_up(path, "ada@example.org"))
        print(sign_up(path, "grace@example.org"))
        asyncio.run(run_worker(path, expected=2))
        with closing(sqlite3.connect(path)) as db:
            print("mails written:", [row[0] for row in db.execute("SELECT recipient FROM mail ORDER BY rowid")])
