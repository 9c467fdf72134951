"""A worker in a process of its own: ``python -m tests.support.shard_worker URL STREAM NAME FOLDER``.

It appends a line for each event that it starts and for each that it has finished to ``FOLDER/log``. While
``FOLDER/hold`` exists, handlers do not end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from kingdom.bus import Envelope, Worker, connect


async def main(url: str, stream: str, name: str, folder: Path) -> None:
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, event: Envelope) -> None:
        os.write(log, f"{what} {name} {event.aggregate_id} {event.payload['number']}\n".encode())

    async with connect(url) as bus:
        worker = Worker(bus, stream, name=name, concurrency=8, batch=20, lease=5)

        @worker.on("Happened")
        async def handle(event: Envelope) -> None:
            note("start", event)
            while (folder / "hold").exists():
                await asyncio.sleep(0.02)
            note("end", event)

        await worker.run()
        print(f"lost {worker.stats.leases_lost}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
