"""A proxy for TCP connections that can cut all of them at once."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Passes connections to a port of this machine on. It runs in a thread of its own."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0  # set it before the first connection
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> int:
        """Cut every connection, in the middle of whatever is under way; return how many there were."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    async def _cut(self) -> int:
        writers = list(self._open)
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    async def _end(self) -> None:
        self._server.close()
        await self._cut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
