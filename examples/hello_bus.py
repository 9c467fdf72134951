"""The smallest use of the bus: publish three events, handle them, stop. ``python -m examples.hello_bus [URL]``."""

from __future__ import annotations

import asyncio
import sys
import tempfile

from kingdom.bus import Envelope, Worker, connect


async def main(url: str) -> None:
    """Publish and consume on the bus at ``url``."""
    async with connect(url) as bus:
        await bus.setup()  # creates the tables or directories; safe to repeat
        names = ["Ada", "Grace", "Barbara"]
        accepted = await bus.publish("hello", [Envelope(type="Greet", payload={"name": name}) for name in names])
        print(f"published {len(accepted)} events")

        worker = Worker(bus, "hello", name="greeter", concurrency=1)
        greeted: list[str] = []

        @worker.on("Greet")
        async def greet(event: Envelope) -> None:
            print(f"hello, {event.payload['name']}")
            greeted.append(event.event_id)
            if len(greeted) == len(names):
                worker.stop()  # a service would run until SIGTERM instead

        await worker.run()  # returns once the last verdict is written
        print(await bus.depth())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite://{folder}/bus.db"))
