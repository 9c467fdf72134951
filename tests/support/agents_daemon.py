"""A daemon that starts one run and waits for it: ``python agents_daemon.py ROOT PROGRAM``. The test kills it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.support.agents import Barracks


async def main() -> None:
    barracks = Barracks(Path(sys.argv[1]))
    order = barracks.order(options={"program": sys.argv[2]})
    run = await barracks.runner().start(order, lambda event: print(event, flush=True))
    await run.wait()


asyncio.run(main())
