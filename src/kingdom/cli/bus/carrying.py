"""Commands that carry events from one bus to another: relay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import DURATION, PATH, json_option
from kingdom.cli.parsing import command
from kingdom.cli.session import run_async

if TYPE_CHECKING:
    from kingdom.bus import EventRouter

_once_option = click.option("--once", is_flag=True, help="Stop when nothing is left to carry.")


@command()
@click.option("--from", "source", required=True, metavar="URL", help="The bus to read: postgresql://host/database.")
@click.option("--to", "target", required=True, metavar="URL", help="The bus to write: kafka://host:9092.")
@click.option("--streams", metavar="A,B", help="Only these streams. Default: all. No worker may claim from them.")
@click.option(
    "--debezium",
    type=PATH,
    metavar="FILE",
    help="Write the records that Debezium's outbox event router would write, with the properties of its connector.",
)
@click.option("--batch", type=click.IntRange(1, 100_000), default=1000, help="Events that are carried at once.")
@click.option("--lease", type=DURATION, default="30s", help="After this time others take over from a dead relay.")
@_once_option
@json_option
def relay(
    source: str,
    target: str,
    streams: str | None,
    debezium: Path | None,
    batch: int,
    lease: float,
    once: bool,
    json: bool,
) -> None:
    """Carry events from an outbox in PostgreSQL to Kafka.

    In publish order for each aggregate, until it is interrupted. An event is DONE when its record is durable. Several
    relays share the work.
    """
    from kingdom.bus import EventRouter

    names = None if streams is None else [name.strip() for name in streams.split(",") if name.strip()]
    relayed = run_async(
        lambda: _relay(
            source,
            target,
            names,
            once,
            router=None if debezium is None else EventRouter.from_file(debezium),
            batch=batch,
            lease=lease,
        )
    )
    if json:
        output.print_json({"relayed": relayed})
        return
    for stream, count in relayed.items():
        output.say(f"{output.plural(count, 'event')} of {stream} relayed")


async def _relay(
    source: str, target: str, streams: list[str] | None, once: bool, *, router: EventRouter | None, **options: Any
) -> dict[str, int]:
    from kingdom.bus import Relay, connect

    async with connect(source) as outbox, connect(target) as kafka:
        if router is None:
            await kafka.setup()
        relay = Relay(outbox, kafka, streams, router=router, **options)
        await relay.run(once=once)
        return relay.relayed
