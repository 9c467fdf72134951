"""``kingdom bus depth``: how full the streams are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Url
from kingdom.cli.bus.session import on_bus
from kingdom.cli.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from rich.table import Table

    from kingdom.bus import Depth, EventBus

_COLUMNS = ("stream", "pending", "processing", "dead", "oldest")


def depth(
    url: Url,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking, until interrupted.")] = False,
    every: Annotated[
        float, typer.Option(parser=parse_duration, metavar="DURATION", help="How often --watch looks.")
    ] = "1s",  # type: ignore[assignment]  # typer parses defaults as well
    json: Json = False,
) -> None:
    """Show how many events wait, are held and are dead in each stream."""
    from kingdom.bus.looking import depth_document

    if watch and json:
        raise output.misuse("--watch is for people and --json for programs, which ask again: give one of them")
    if watch:
        on_bus(url, lambda bus: _watch(bus, every))
        return
    depths = on_bus(url, lambda bus: bus.depth())
    if json:
        output.emit({"streams": [depth_document(stream, depths[stream]) for stream in sorted(depths)]})
    elif depths:
        output.console().print(_table(depths))
    else:
        output.say("no streams yet: nothing was ever published here")


def _table(depths: dict[str, Depth]) -> Table:
    rows = [
        (
            stream,
            f"{depth.pending:,}",
            f"{depth.processing:,}",
            output.styled(f"{depth.dead:,}", "red" if depth.dead else ""),
            format_duration(depth.oldest_pending_seconds) if depth.pending else "–",
        )
        for stream, depth in sorted(depths.items())
    ]
    return output.table(_COLUMNS, rows, right=_COLUMNS[1:])


async def _watch(bus: EventBus, every: float) -> None:
    import asyncio

    from rich.live import Live

    console = output.console()
    if not sys.stdout.isatty():
        while True:
            console.print(_table(await bus.depth()))
            await asyncio.sleep(every)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_table(await bus.depth()), refresh=True)
            await asyncio.sleep(every)
