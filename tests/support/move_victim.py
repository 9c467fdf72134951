"""A move that is killed at a step. For a process of its own: it kills itself, or ends."""

from __future__ import annotations

import asyncio
from typing import Any

from kingdom.bus import connect, move
from tests.support.relay_victim import Killing


def run(source: str, target: str, stream: str, step: int) -> None:
    asyncio.run(_run(source, target, stream, step))


async def _run(source: str, target: str, stream: str, step: int) -> None:
    count = [step]
    async with connect(source) as old, connect(target) as new:
        killed: Any = Killing(old, count)
        await move(killed, Killing(new, count), stream, batch=5, wait=False)  # type: ignore[arg-type]
