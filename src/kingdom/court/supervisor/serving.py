"""Running one role as the work of a whole process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.loop import run_role

if TYPE_CHECKING:
    from kingdom.court.home import Home

# A general with hundreds of tasks in hand keeps many objects; looking through them every 700 new ones, as Python does
# by itself, takes 4 % of its time.
_GARBAGE: Final = (10_000, 10, 10)


async def serve(home: Home, name: str, *, lifeline: int | None = None, foreground: bool = False) -> None:
    """Run a role until SIGTERM, SIGINT, or the end of ``lifeline``, a pipe whose other end the supervisor holds."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if lifeline is not None:
        end = lifeline

        def orphaned() -> None:
            loop.remove_reader(end)
            stop.set()

        loop.add_reader(end, orphaned)
    name_process(name)
    gc.set_threshold(*_GARBAGE)
    async with open_services(home) as services:
        await run_role(make_role(name, services, foreground=foreground), services, stop)


def name_process(role: str) -> None:
    """Let ``ps`` and ``top`` show which role this process is, where the system has a way to say it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"kd:{role}"[:15], encoding="utf-8")
