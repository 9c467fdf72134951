"""What the handlers of the campaign do: leave an effect, behind an Inbox where the store has transactions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from kingdom.bus import Envelope, Inbox
from tests.chaos.grounds import EFFECTS_PATH, connect_postgres

Leave = Callable[[Envelope], Awaitable[None]]
_INSERT = "INSERT INTO chaos_effect (event_id, worker) VALUES "


def effect_of(url: str, worker: str) -> Leave:
    """The function that leaves the effect of one event on the ground at ``url``."""
    scheme = urlsplit(url).scheme
    if scheme == "kafka":
        return _sqlite(f"sqlite://{os.environ[EFFECTS_PATH]}", worker)
    return {"files": _append, "sqlite": _sqlite, "postgresql": _postgres}[scheme](url, worker)


def _append(url: str, worker: str) -> Leave:
    path = Path(urlsplit(url).path).parent / "effects.log"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def leave(event: Envelope) -> None:
        os.write(handle, f"{event.event_id} {worker}\n".encode())  # one append: lines never mix

    return leave


def _sqlite(url: str, worker: str) -> Leave:
    path, inbox = urlsplit(url).path, Inbox("chaos")

    def write(event: Envelope) -> None:
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                if inbox.first_sync(event, tx=connection):
                    connection.execute(_INSERT + "(?, ?)", (event.event_id, worker))

    async def leave(event: Envelope) -> None:
        await asyncio.to_thread(write, event)

    return leave


def _postgres(url: str, worker: str) -> Leave:
    inbox = Inbox("chaos")

    async def leave(event: Envelope) -> None:
        connection = await connect_postgres(url)
        try:
            async with connection.transaction():
                if await inbox.first(event, tx=connection):
                    await connection.execute(_INSERT + "($1, $2)", event.event_id, worker)
        finally:
            await connection.close(timeout=5)

    return leave
