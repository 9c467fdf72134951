"""Servers of tests, in an event loop. When one is closed, none of its connections and none of its tasks are left."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol


class Serve(Protocol):
    """Speaks with one client until it is done; the connection is closed then."""

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, /) -> Coroutine[Any, Any, None]: ...


class Listener:
    """Made by :func:`listen`.

    A server of asyncio does not know its connections: one whose task was cancelled before it ran stays open, and a
    later test is blamed for it.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, address: str, path: Path | None) -> None:
        """Listen on a free port of this address, or on a unix socket."""
        if path is not None:
            self._server = await asyncio.start_unix_server(self._connected, path)
        else:
            self._server = await asyncio.start_server(self._connected, address, 0)

    async def close(self) -> None:
        """Take no more connections, end those there are, and wait until they are gone."""
        assert self._server is not None
        loop = asyncio.get_running_loop()
        for socket in self._server.sockets:
            loop.remove_reader(socket.fileno())  # a closed server loses those it has accepted and not yet taken in
        await _turn()  # they get their tasks now
        self._server.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await _turn()
        for writer in self._writers:
            writer.transport.abort()
        await _turn()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())


async def _turn() -> None:
    """Let the loop do what it has begun: a connection takes three rounds from being accepted to its task."""
    for _ in range(5):
        await asyncio.sleep(0)


async def listen(serve: Serve, address: str = "127.0.0.1", path: Path | None = None) -> Listener:
    """Serve connections to a port of this address, or to a unix socket, until it is closed."""
    listener = Listener(serve)
    await listener.start(address, path)
    return listener


@asynccontextmanager
async def listening(serve: Serve, path: Path | None = None) -> AsyncIterator[Listener]:
    """The same, as a block."""
    listener = await listen(serve, path=path)
    try:
        yield listener
    finally:
        await listener.close()
