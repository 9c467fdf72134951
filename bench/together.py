"""Several processes draining one stream at the same time."""

from __future__ import annotations

import asyncio
import multiprocessing
from ctypes import c_long
from time import monotonic
from typing import Any

from bench import ours
from bench.harness import Figures
from bench.payload import STREAM, TYPE, payloads
from bench.transports import Place
from kingdom.bus import Envelope, Worker, connect

_processes = multiprocessing.get_context("spawn")


async def drain(place: Place, count: int, processes: int) -> Figures:
    """Fill a fresh bus; let ``processes`` workers start together; take the time until the last of them is done."""
    async with place.fresh() as fresh:
        async with connect(fresh.url) as bus:
            await bus.setup()
            await ours.fill(bus, payloads(count))
        await fresh.filled()
        seconds = await asyncio.to_thread(_run_all, fresh.url, count, processes)
        async with connect(fresh.url) as bus:
            depth = (await bus.depth()).get(STREAM)
        left = depth.pending + depth.processing + depth.dead if depth else 0
        assert left == 0, f"{left} events are not DONE"
    return {"rate": count / seconds}


def _run_all(url: str, count: int, processes: int) -> float:
    handled = _processes.Array(c_long, processes, lock=False)  # each process writes its own place only
    together = _processes.Barrier(processes)
    times: Any = _processes.SimpleQueue()
    children = [
        _processes.Process(target=_work, args=(url, count, index, handled, together, times))
        for index in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0, f"a worker process ended with exit code {child.exitcode}"
    spans = [times.get() for _ in children]
    return float(max(end for _, end in spans) - min(start for start, _ in spans))


def _work(url: str, count: int, index: int, handled: Any, together: Any, times: Any) -> None:
    times.put(asyncio.run(_drain(url, count, index, handled, together)))


async def _drain(url: str, count: int, index: int, handled: Any, together: Any) -> tuple[float, float]:
    async with connect(url) as bus:
        worker = Worker(bus, STREAM, name=f"bench-{index}", signals=False)

        @worker.on(TYPE)
        async def handle(_: Envelope) -> None:
            handled[index] += 1

        async def watch() -> None:
            while sum(handled) < count:
                await asyncio.sleep(0.005)
            worker.stop()

        together.wait(60)
        started = monotonic()  # the same clock in every process
        watching = asyncio.create_task(watch())
        await worker.run()
        ended = monotonic()
        await watching
    return started, ended
