"""Commands that carry events from one bus to another: relay, mirror, move."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import DURATION, PATH, json_option, stream_argument, yes_option
from kingdom.cli.parsing import command
from kingdom.cli.session import run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.bus import EventBus, EventRouter, Moved

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
        await _check_streams(outbox, streams or (), once=once)
        await relay.run(once=once)
        return relay.relayed


async def _check_streams(bus: EventBus, streams: Sequence[str], *, once: bool) -> None:
    """Refuse a stream that does not exist, or warn where it is waited for."""
    from kingdom.bus.urls import redact_url

    known = await bus.depth() if streams else {}
    for stream in streams:
        if stream in known or await anext(bus.records(stream), None) is not None:  # finished events have no depth
            continue
        there = f"it has {', '.join(sorted(known))}" if known else "it has none with events that wait"
        what = f"there is no stream {stream!r} in {redact_url(bus.url)}: {there}"
        if once:
            raise output.CommandError("UNKNOWN_STREAM", what)
        output.warn(f"{what}. It is relayed when something is published there")


@command()
@click.option("--from", "source", required=True, metavar="URL", help="The brokers: kafka://host:9092.")
@click.option("--topics", required=True, metavar="A,B", help="The topics to read, by their whole names.")
@click.option("--to", "target", required=True, metavar="URL", help="The bus to write, on any transport.")
@click.option("--stream", required=True, metavar="STREAM", help="The stream to publish in.")
@click.option("--group", metavar="GROUP", help="The consumer group. Default: kingdom-mirror-STREAM.")
@click.option("--type", "event_type", metavar="TYPE", help="The type of records that name none. Default: their topic.")
@_once_option
@json_option
def mirror(
    source: str,
    topics: str,
    target: str,
    stream: str,
    group: str | None,
    event_type: str | None,
    once: bool,
    json: bool,
) -> None:
    """Publish the records of Kafka topics in a stream.

    Each once, by its id, until it is interrupted. Mirrors of the same group share the partitions.
    """
    names = [name.strip() for name in topics.split(",") if name.strip()]
    mirrored = run_async(lambda: _mirror(source, names, target, stream, once, group=group, event_type=event_type))
    if json:
        output.print_json({"stream": stream, "mirrored": mirrored})
    else:
        output.say(f"{output.plural(mirrored, 'event')} published in {stream}")


async def _mirror(source: str, topics: list[str], target: str, stream: str, once: bool, **options: Any) -> int:
    from kingdom.bus import Mirror, connect

    async with connect(source) as kafka, connect(target) as bus:
        await bus.setup()
        mirror = Mirror(kafka, topics, bus, stream, **options)
        await mirror.run(once=once)
        return mirror.mirrored


@command()
@stream_argument
@click.option("--from", "source", required=True, metavar="URL", help="The bus that has the stream.")
@click.option("--to", "target", required=True, metavar="URL", help="The bus that is to have it.")
@click.option("--dead", is_flag=True, help="Requeue dead letters first, so that they are moved too.")
@click.option("--no-wait", is_flag=True, help="Leave events that cannot be claimed now: delayed, held or parked.")
@yes_option
@json_option
def move(stream: str, source: str, target: str, dead: bool, no_wait: bool, yes: bool, json: bool) -> None:
    """Move the unfinished events of a stream to another bus.

    First stop the workers, publish to the other bus, and declare the stream there. Can be interrupted and repeated.
    """
    from kingdom.bus.urls import redact_url

    output.confirm(f"Move the events of {stream} from {redact_url(source)} to {redact_url(target)}?", yes=yes)
    moved = run_async(lambda: _move(source, target, stream, wait=not no_wait, dead=dead))
    if json:
        output.print_json({"stream": stream, "moved": moved.events, "waiting": moved.waiting, "dead": moved.dead})
        return
    output.say(f"{output.plural(moved.events, 'event')} of {stream} moved")
    if moved.waiting or moved.dead:
        output.say(f"left behind: {moved.waiting} delayed, held or parked, {output.plural(moved.dead, 'dead letter')}")


async def _move(source: str, target: str, stream: str, **options: Any) -> Moved:
    from kingdom.bus import connect, move

    async with connect(source) as old, connect(target) as new:
        await new.setup()
        return await move(old, new, stream, **options)
