"""Commands that change a bus: migrate, requeue, purge, bench."""

from __future__ import annotations

from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.options import (
    ErrorCodeOption,
    EventTypeOption,
    JsonOption,
    StreamArgument,
    UrlOption,
    YesOption,
    format_duration,
    parse_duration,
)
from kingdom.cli.session import with_bus

_MAX_COUNTED = 1000  # dead letters counted for the question; beyond, it says "at least"


def migrate(url: UrlOption, json: JsonOption = False) -> None:
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


def requeue(
    stream: StreamArgument,
    url: UrlOption,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="EVENT_ID", help="This event, dead or done; may be repeated."),
    ] = None,
    event_type: EventTypeOption = None,
    code: ErrorCodeOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead event of the stream.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
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


def purge(
    url: UrlOption,
    older_than: Annotated[
        float,
        typer.Option(
            parser=parse_duration, metavar="DURATION", help="Only events that ended longer ago than this: 30s, 2h, 7d."
        ),
    ],
    stream: Annotated[str | None, typer.Option(metavar="STREAM", help="Only this stream.", show_default=False)] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Delete dead letters too, not only finished events.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
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


def bench(
    url: UrlOption,
    events: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many events to publish and drain.")] = 5_000,
    singles: Annotated[int, typer.Option(min=1, max=10_000, help="How many events to time one by one.")] = 100,
    size: Annotated[int, typer.Option(min=0, max=100_000, help="Bytes of payload in each event.")] = 300,
    concurrency: Annotated[int, typer.Option(min=1, max=1_000, help="Handlers at a time.")] = 8,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Measure the throughput and latency of a bus.

    Publishes in batches, drains with a worker, and times single events from publish to handler. Uses a stream of its
    own, kingdom.bench.<random>, and removes what it published.
    """
    from kingdom.bus.eventbus import redact_url

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


def _requeue_question(url: str, stream: str, ids: list[str] | None, event_type: str | None, code: str | None) -> str:
    from kingdom.bus.delivery import matching_letters

    if ids:
        return f"Requeue {len(ids)} event(s) of {stream} by id?"
    letters = with_bus(url, lambda bus: matching_letters(bus, stream, _MAX_COUNTED, event_type, code))
    count = f"at least {_MAX_COUNTED}" if len(letters) == _MAX_COUNTED else str(len(letters))
    narrowed = [f"of type {event_type}"] if event_type else []
    narrowed += [f"with the code {code}"] if code else []
    return f"Requeue {' '.join([count, 'dead event(s)', *narrowed])} of {stream}?"
