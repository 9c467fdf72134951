"""``kingdom bus metrics``: the depths of a bus for Prometheus, beside whatever works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli.bus.options import Json, Url
from kingdom.cli.bus.session import on_bus
from kingdom.cli.durations import parse_duration

if TYPE_CHECKING:
    from kingdom.bus import EventBus


def metrics(
    url: Url,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to serve on; 0 takes a free one.")] = 9464,
    host: Annotated[str, typer.Option(help="The address to serve on.")] = "127.0.0.1",
    every: Annotated[
        float, typer.Option(parser=parse_duration, metavar="DURATION", help="How often the store is asked.")
    ] = "15s",  # type: ignore[assignment]  # typer parses defaults as well
    prefix: Annotated[str, typer.Option(help="What the names of the metrics start with.")] = "kingdom",
    json: Json = False,
) -> None:
    """Serve the depths of the streams to Prometheus, until interrupted."""
    on_bus(url, lambda bus: _serve(bus, host, port, every, prefix, json))


async def _serve(bus: EventBus, host: str, port: int, every: float, prefix: str, json: bool) -> None:
    from prometheus_client import CollectorRegistry

    from kingdom.bus.metrics import Metrics
    from kingdom.cli.serving import served

    watching = Metrics(prefix)
    watching.watch(bus)
    await watching.sample()  # so that the first scrape finds something, and a store that is not set up is said now
    registry = CollectorRegistry()
    watching.register(registry)
    with served(registry, host, port, json=json):
        await watching.run(every)
