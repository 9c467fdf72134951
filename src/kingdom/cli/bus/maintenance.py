"""Commands that change a bus: migrate, requeue, purge, bench."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kingdom.cli import output
from kingdom.cli.options import (
    DURATION,
    error_code_option,
    event_type_option,
    format_duration,
    json_option,
    stream_argument,
    url_option,
    yes_option,
)
from kingdom.cli.parsing import command
from kingdom.cli.session import with_bus

_MAX_COUNTED = 1000  # dead letters counted for the question; beyond, it says "at least"


@command()
@url_option
@json_option
def migrate(url: str, json: bool) -> None:
    """Create or update the tables or directories of a bus.

    Safe to repeat.
    """
    applied = with_bus(url, lambda bus: bus.setup())
    if json:
        output.print_json({"applied": applied})
    elif applied:
        for name in applied:
            output.say(f"applied {name}")
    else:
        output.say("up to date: nothing to apply")


@command()
@stream_argument
@url_option
@click.option("--id", "ids", multiple=True, metavar="EVENT_ID", help="This event, dead or done; may be repeated.")
@event_type_option
@error_code_option
@click.option("--all", "everything", is_flag=True, help="Every dead event of the stream.")
@yes_option
@json_option
def requeue(
    stream: str,
    url: str,
    ids: tuple[str, ...],
    event_type: str | None,
    code: str | None,
    everything: bool,
    yes: bool,
    json: bool,
) -> None:
    """Move dead events back to pending, with no attempts used.

    Select them by id, by type, by error code, or take all.
    """
    filtered = event_type is not None or code is not None
    if [bool(ids), filtered, everything].count(True) != 1:
        raise output.usage_error("say which events to requeue: --id (once or more), or --type and/or --code, or --all")
    if not yes:
        output.confirm(_requeue_question(url, stream, ids, event_type, code), yes=False)
    moved = with_bus(
        url,
        lambda bus: bus.requeue(stream, ids or None, event_type=event_type, error_code=code, everything=everything),
    )
    if json:
        output.print_json({"stream": stream, "requeued": moved})
    else:
        output.say(f"{output.plural(moved, 'event')} of {stream} requeued")


@command()
@url_option
@click.option(
    "--older-than", type=DURATION, required=True, help="Only events that ended longer ago than this: 30s, 2h, 7d."
)
@click.option("--stream", metavar="STREAM", help="Only this stream.")
@click.option("--dead", is_flag=True, help="Delete dead letters too, not only finished events.")
@yes_option
@json_option
def purge(url: str, older_than: float, stream: str | None, dead: bool, yes: bool, json: bool) -> None:
    """Delete finished events.

    The id of a deleted event may be published again.
    """
    what = "DONE and DEAD" if dead else "DONE"
    where = f"stream {stream}" if stream else "every stream"
    output.confirm(f"Delete {what} events of {where} that ended over {format_duration(older_than)} ago?", yes=yes)
    purged = with_bus(url, lambda bus: bus.purge(older_than, stream=stream, dead=dead))
    if json:
        output.print_json({"purged": purged})
    else:
        output.say(f"{output.plural(purged, 'event')} deleted")


@command()
@url_option
@click.option(
    "--events", type=click.IntRange(1, 1_000_000), default=5_000, help="How many events to publish and drain."
)
@click.option("--singles", type=click.IntRange(1, 10_000), default=100, help="How many events to time one by one.")
@click.option("--size", type=click.IntRange(0, 100_000), default=300, help="Bytes of payload in each event.")
@click.option("--concurrency", type=click.IntRange(1, 1_000), default=8, help="Handlers at a time.")
@yes_option
@json_option
def bench(url: str, events: int, singles: int, size: int, concurrency: int, yes: bool, json: bool) -> None:
    """Measure the throughput and latency of a bus.

    Publishes in batches, drains with a worker, and times single events from publish to handler. Uses a stream of its
    own, kingdom.bench.<random>, and removes what it published.
    """
    from kingdom.bus.urls import redact_url

    output.confirm(
        f"Publish and drain {events + singles:,} events on {redact_url(url)}, in a stream of their own?", yes=yes
    )
    from kingdom.cli.bus.benchmark import measure

    result = with_bus(url, lambda bus: measure(bus, events, singles, size, concurrency))
    if json:
        output.print_json(result.document())
        return
    rows = [
        ("publish in batches", f"{result.publish_rate:,.0f} events/s"),
        ("drain with a worker", f"{result.drain_rate:,.0f} events/s"),
        ("publish to handler, p50", f"{result.latency(50):.2f} ms"),
        ("publish to handler, p99", f"{result.latency(99):.2f} ms"),
    ]
    output.print_table(("measured", "figure"), rows, right=("figure",))
    output.say(f"{events:,} events of {size} bytes, {singles} single ones; removed {result.removed:,} from the bus")


def _requeue_question(url: str, stream: str, ids: Sequence[str], event_type: str | None, code: str | None) -> str:
    from kingdom.bus.delivery import matching_letters

    if ids:
        return f"Requeue {len(ids)} event(s) of {stream} by id?"
    letters = with_bus(url, lambda bus: matching_letters(bus, stream, _MAX_COUNTED, event_type, code))
    count = f"at least {_MAX_COUNTED}" if len(letters) == _MAX_COUNTED else str(len(letters))
    narrowed = [f"of type {event_type}"] if event_type else []
    narrowed += [f"with the code {code}"] if code else []
    return f"Requeue {' '.join([count, 'dead event(s)', *narrowed])} of {stream}?"
