"""A worker that Prometheus can scrape. ``python -m examples.metrics_endpoint [URL]`` scrapes itself once and ends."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, start_http_server

from kingdom.bus import Envelope, Worker, connect, logs
from kingdom.bus.metrics import Metrics

STREAM = "reports"


async def main(url: str) -> None:
    """Handle ten events and serve their metrics on a free local port."""
    logs.configure(level="WARNING")
    async with connect(url) as bus:
        await bus.setup()
        await bus.declare(STREAM)  # so that its depth is reported while it is empty
        await bus.publish(STREAM, [Envelope(type="Render", payload={"page": page}) for page in range(10)])
        worker = Worker(bus, STREAM, name="printer")
        pages = 0

        @worker.on("Render")
        async def render(event: Envelope) -> None:
            nonlocal pages
            pages += 1
            if pages == 10:
                worker.stop()

        metrics = Metrics()
        metrics.watch(worker)  # its counters, and the depth of its bus
        registry = CollectorRegistry()
        metrics.register(registry)
        server, thread = start_http_server(0, "127.0.0.1", registry)
        try:
            await worker.run()
            await metrics.sample()  # a service runs `asyncio.create_task(metrics.run())` instead
            address = f"http://127.0.0.1:{server.server_port}/metrics"
            text = await asyncio.to_thread(lambda: urlopen(address).read().decode())
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
        wanted = ("outbox_pending{", "outbox_processed_total{", "handler_duration_seconds_count{")
        print("\n".join(line for line in text.splitlines() if any(name in line for name in wanted)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite://{folder}/bus.db"))
