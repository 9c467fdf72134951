"""``kingdom metrics``: a court for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import in_court
from kingdom.cli.durations import parse_duration
from kingdom.cli.home import HomeOption

if TYPE_CHECKING:
    from kingdom.court.loop import Services


def metrics(
    serve: Annotated[bool, typer.Option("--serve", help="Serve them until interrupted, instead of printing.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to serve on; 0 takes a free one.")] = 9465,
    host: Annotated[str, typer.Option(help="The address to serve on.")] = "127.0.0.1",
    every: Annotated[
        float, typer.Option(parser=parse_duration, metavar="DURATION", help="How often the court is looked at.")
    ] = "15s",  # type: ignore[assignment]  # typer parses defaults as well
    prefix: Annotated[str, typer.Option(help="What the names of the metrics start with.")] = "kingdom",
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Print the metrics of the court as Prometheus reads them, or serve them."""
    in_court(home, lambda services: _run(services, serve, host, port, every, prefix, json))


async def _run(services: Services, serve: bool, host: str, port: int, every: float, prefix: str, json: bool) -> None:
    import asyncio

    from prometheus_client import CollectorRegistry, generate_latest

    from kingdom.cli.serving import served
    from kingdom.court.metrics import CourtMetrics

    collector = CourtMetrics(services, prefix)
    await collector.sample()
    registry = CollectorRegistry()
    registry.register(collector)
    if not serve:
        text = generate_latest(registry).decode()
        if json:
            output.emit({"metrics": text})
        else:
            output.say(text.rstrip())
        return
    with served(registry, host, port, json=json):
        while True:
            await asyncio.sleep(every)
            await collector.sample()
