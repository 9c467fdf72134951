"""``kingdom bus bench``: how fast this bus is, here and now."""

from __future__ import annotations

from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Url, Yes
from kingdom.cli.bus.session import on_bus


def bench(
    url: Url,
    events: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many events to publish and drain.")] = 5_000,
    singles: Annotated[int, typer.Option(min=1, max=10_000, help="How many events to time one by one.")] = 100,
    size: Annotated[int, typer.Option(min=0, max=100_000, help="Bytes of payload in each event.")] = 300,
    concurrency: Annotated[int, typer.Option(min=1, max=1_000, help="Handlers at a time.")] = 8,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Measure this bus: publish in batches, drain with a worker, and time single events from publish to handler.

    Works in a stream of its own, kingdom.bench.<random>, and removes what it published.
    """
    from kingdom.bus.connecting import shown_url

    output.confirm(
        f"Publish and drain {events + singles:,} events on {shown_url(url)}, in a stream of their own?", yes=yes
    )
    from kingdom.cli.bus.measuring import measure

    measured = on_bus(url, lambda bus: measure(bus, events, singles, size, concurrency))
    if json:
        output.emit(measured.document())
        return
    rows = [
        ("publish in batches", f"{measured.publish_rate:,.0f} events/s"),
        ("drain with a worker", f"{measured.drain_rate:,.0f} events/s"),
        ("publish to handler, p50", f"{measured.latency(50):.2f} ms"),
        ("publish to handler, p99", f"{measured.latency(99):.2f} ms"),
    ]
    output.print_table(("measured", "figure"), rows, right=("figure",))
    output.say(f"{events:,} events of {size} bytes, {singles} single ones; removed {measured.removed:,} from the bus")
