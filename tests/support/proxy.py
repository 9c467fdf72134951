"""A proxy for TCP connections that can cut all of them at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Self, TypeVar

from tests.support.serving import Listener, Serve, listen

R = TypeVar("R")


class ThreadedServers:
    """Servers in the event loop of a thread of its own. They end with the block, and all their connections."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers", daemon=True)
        self._listeners: list[Listener] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[None, None, R]) -> R:
        """Run something in that thread; return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def listen(self, serve: Serve, address: str = "127.0.0.1") -> int:
        """Serve connections to a port of this address; return the port."""
        listener = self.run(listen(serve, address))
        self._listeners.append(listener)
        return listener.port

    async def _end(self) -> None:
        for listener in self._listeners:
            await listener.close()


class CuttingProxy(ThreadedServers):
    """Passes connections to a port of this machine on."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.target = 0  # set it before the first connection
        self._open: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        super().__enter__()
        self.port = self.listen(self._serve)
        return self

    def cut(self) -> int:
        """Cut every connection, in the middle of whatever is under way; return how many there were."""
        return self.run(self._cut())

    async def _cut(self) -> int:
        writers = list(self._open)
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    async def _end(self) -> None:
        await self._cut()
        await super()._end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # nobody is there now
            writer.transport.abort()
            return
        self._open |= {writer, back}
        try:
            await asyncio.gather(pass_on(reader, back), pass_on(there, writer))
        finally:
            self._open -= {writer, back}
            writer.transport.abort()
            back.transport.abort()


async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Write what is read until there is no more, and then close what is written to."""
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.transport.abort()
