"""One worker process of the demo: ``python -m kingdom.cli.bus.demo.worker URL LEDGER NAME``.

It ends when its standard input does, so that it never outlives the demo, however the demo ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from kingdom.bus import Envelope, Worker, connect, current_delivery, logs
from kingdom.cli.bus.demo.ledger import Ledger

STREAM: Final = "demo.orders"
EVENT_TYPE: Final = "OrderPlaced"
LEASE: Final = 2.0  # seconds; short, so that nobody waits long for the events of the killed worker
_WORK: Final = 0.15  # seconds one event takes


async def work(url: str, ledger: Ledger, name: str) -> None:
    """Handle the demo's events until standard input ends or SIGTERM arrives."""
    async with connect(url) as bus:
        worker = Worker(bus, STREAM, name=name, lease=LEASE, grace=LEASE, poll=0.2)

        @worker.on(EVENT_TYPE)
        async def handle(event: Envelope) -> None:
            # The effect comes first, so that a worker killed during the rest leaves events that took effect but are
            # not finished: these are delivered again, and only the inbox keeps them from taking effect twice.
            ledger.handle(current_delivery(), name)
            await asyncio.sleep(_WORK)

        loop = asyncio.get_running_loop()

        def read() -> None:
            if not os.read(0, 1024):
                loop.remove_reader(0)
                worker.stop()

        loop.add_reader(0, read)
        await worker.run()


def main() -> None:
    """Run the worker named on the command line."""
    url, path, name = sys.argv[1:]
    logs.configure(json=True)
    ledger = Ledger(Path(path))
    try:
        asyncio.run(work(url, ledger, name))
    finally:
        ledger.close()


if __name__ == "__main__":
    main()
