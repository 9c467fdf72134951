"""A wire to PostgreSQL that can be cut at the worst moment: when the server has done what it was asked, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tests.support.serving import listening


class Wire:
    """Passes on what both ends say, until it is told to swallow answers."""

    def __init__(self) -> None:
        self.url = ""
        self.cut = 0
        self._to_cut: bytes | None = None
        self._down = False
        self._open: set[asyncio.StreamWriter] = set()

    def go_down(self) -> None:
        """Cut all connections, and let none in until it is up again."""
        self._down = True
        for writer in self._open:
            writer.close()

    def come_up(self) -> None:
        """Let connections in again."""
        self._down = False

    def cut_answer_to(self, words: bytes) -> None:
        """Cut the connection that next brings an answer to a message with these words in it, in place of the answer."""
        self._to_cut = words

    async def serve(self, server: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client with the server's socket."""
        if self._down:
            writer.close()
            return
        behind, ahead = await asyncio.open_unix_connection(server)
        self._open |= {writer, ahead}
        asked = False

        async def forth() -> None:
            nonlocal asked
            while data := await reader.read(65_536):
                asked = asked or (self._to_cut is not None and self._to_cut in data)
                ahead.write(data)
                await ahead.drain()

        async def back() -> None:
            while data := await behind.read(65_536):
                if asked:
                    self._to_cut = None
                    self.cut += 1
                    return
                writer.write(data)
                await writer.drain()

        both = [asyncio.create_task(forth()), asyncio.create_task(back())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            self._open -= {writer, ahead}
            ahead.close()
            writer.close()


@asynccontextmanager
async def wire_to(url: str, folder: Path) -> AsyncIterator[Wire]:
    """A wire to the server of ``url``, which is reached by a socket in a folder; its own is in ``folder``."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    socket = Path(query["host"]) / ".s.PGSQL.5432"
    wire = Wire()
    wire.url = urlunsplit(parts._replace(query=urlencode({**query, "host": str(folder)})))
    async with listening(partial(wire.serve, str(socket)), folder / ".s.PGSQL.5432"):
        yield wire
