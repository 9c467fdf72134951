"""Worker processes that drain one stream on Kafka together: ``python -m bench.processes URL`` is one of them.

All events become claimable at one moment, when the shards are dealt out and everything is published. A process prints
when it handled its first and its last event so far, and how many.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from subprocess import PIPE
from typing import Self

from bench.harness import Figures
from bench.ours import kafka_url
from bench.payload import STREAM, TYPE, chunks, payloads
from kingdom.bus import Envelope, EventBus, Worker, connect

_SHARDS = 4
_PUBLISH_RATE = 2000  # events per second that are published at least
_MARGIN_SECONDS = 3.0


async def kafka_drain_together(servers: str, count: int, *, processes: int) -> Figures:
    """Fill four shards, then drain them with so many processes."""
    url = f"{kafka_url(servers)}&shards={_SHARDS}"
    async with connect(url) as bus, AsyncExitStack() as stack:
        await bus.setup()
        await bus.declare(STREAM)
        workers = [await stack.enter_async_context(_WorkerProcess(url)) for _ in range(processes)]
        await _until_dealt_out(bus, processes)
        due = time.time() + count / _PUBLISH_RATE + _MARGIN_SECONDS
        not_before = datetime.fromtimestamp(due, UTC)
        for some in chunks(payloads(count), 1000):
            await bus.publish(STREAM, [Envelope(type=TYPE, payload=item, not_before=not_before) for item in some])
        assert time.time() < due, "publishing took too long"
        await asyncio.sleep(due - time.time())
        async with asyncio.timeout(300):
            while sum(worker.handled for worker in workers) < count:
                await asyncio.sleep(0.05)
        seconds = max(worker.last for worker in workers) - min(worker.first for worker in workers if worker.handled)
        return {"rate": count / seconds}


class _WorkerProcess:
    def __init__(self, url: str) -> None:
        self._url = url
        self.handled, self.first, self.last = 0, float("inf"), 0.0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.processes", self._url, stdout=PIPE
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._process.terminate()
        await self._reading
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            handled, first, last = line.split()
            self.handled, self.first, self.last = int(handled), float(first), float(last)


async def _until_dealt_out(bus: EventBus, processes: int) -> None:
    async with asyncio.timeout(60):
        while True:
            message = {check.name: check.message for check in await bus.doctor()}.get(f"shards of {STREAM}", "")
            if message.count(" at ") == processes and "none at" not in message:
                return
            await asyncio.sleep(0.1)


async def main(url: str) -> None:
    handled, first, last = 0, 0.0, 0.0

    async def report() -> None:
        told = 0
        while True:
            await asyncio.sleep(0.05)
            if handled > told:
                told = handled
                print(told, first, last, flush=True)

    async with connect(url) as bus:
        worker = Worker(bus, STREAM, batch=500, poll=0.05)

        @worker.on(TYPE)
        async def handle(_: Envelope) -> None:
            nonlocal handled, first, last
            last = time.time()
            first = first or last
            handled += 1

        reporting = asyncio.create_task(report())
        await worker.run()
        reporting.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
