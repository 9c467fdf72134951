"""What a worker costs while nothing happens."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Coroutine
from time import monotonic
from typing import Any, Final

from bench.harness import Figures

_SETTLING: Final = 1.5  # seconds until start-up is over: connecting, first polls, first imports


async def cpu(worker: Coroutine[Any, Any, None], seconds: float) -> Figures:
    """Run ``worker`` alone in this process; return the CPU time it took, in percent of one core."""
    working = asyncio.create_task(worker)
    try:
        await asyncio.sleep(_SETTLING)
        before, started = _used(), monotonic()
        await asyncio.sleep(seconds)
        used, elapsed = _used() - before, monotonic() - started
        if working.done():
            working.result()
            raise RuntimeError("the worker ended by itself")
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    return {"cpu": 100 * used / elapsed}


def _used() -> float:
    """CPU seconds of this process, all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
