"""A move that is killed at a step: ``python -m tests.support.move_victim SOURCE TARGET STREAM STEP``.

Prints "done" if it comes to an end before.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from kingdom.bus import connect, move
from tests.support.relay_victim import Killing


async def main(source: str, target: str, stream: str, step: int) -> None:
    count = [step]
    async with connect(source) as old, connect(target) as new:
        killed: Any = Killing(old, count)
        await move(killed, Killing(new, count), stream, batch=5, wait=False)  # type: ignore[arg-type]
    print("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
