"""Commands that inspect a bus: depth, ls, dead, show, doctor, metrics."""

from __future__ import annotations

import contextlib
import json as jsonlib
from typing import TYPE_CHECKING, Any, Final

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
)
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import with_bus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from prometheus_client import CollectorRegistry

    from kingdom.bus import Check, DeadLetter, Depth, EventBus

_DEPTH_COLUMNS = ("stream", "pending", "processing", "dead", "oldest")
_CHECK_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "red"}

limit_option = click.option("--limit", type=click.IntRange(1), default=50, help="Show at most this many.")


@command()
@url_option
@click.option("--watch", "-w", is_flag=True, help="Refresh until interrupted.")
@click.option("--every", type=DURATION, default="1s", help="How often --watch refreshes.")
@json_option
def depth(url: str, watch: bool, every: float, json: bool) -> None:
    """Show how many events are pending, held and dead."""
    from kingdom.bus.delivery import depth_document

    if watch:
        refuse_watch_with_json(json)
        with_bus(url, lambda bus: refresh(lambda: _depth_view(bus), every))
        return
    depths = with_bus(url, lambda bus: bus.depth())
    if json:
        output.print_json({"streams": [depth_document(stream, depths[stream]) for stream in sorted(depths)]})
    elif depths:
        output.show(_depth_table(depths))
    else:
        output.say("no streams yet: nothing was published here")


@command()
@stream_argument
@url_option
@limit_option
@event_type_option
@json_option
def ls(stream: str, url: str, limit: int, event_type: str | None, json: bool) -> None:
    """List the events that can be claimed now, in order.

    Nothing is claimed.
    """
    from kingdom.bus.delivery import format_optional_time, record_document

    types = None if event_type is None else [event_type]
    records = with_bus(url, lambda bus: bus.peek(stream, limit=limit, types=types))
    if json:
        output.print_json({"stream": stream, "events": [record_document(record) for record in records]})
    elif records:
        rows = [
            (
                record.envelope.event_id,
                record.envelope.type,
                record.envelope.priority,
                record.attempts,
                format_optional_time(record.created_at),
            )
            for record in records
        ]
        output.print_table(("event", "type", "priority", "attempts", "published"), rows, right=("attempts",))
    else:
        output.say(f"no event of {stream} can be claimed now: kingdom bus depth counts pending, held and dead events")


@command()
@stream_argument
@url_option
@limit_option
@event_type_option
@error_code_option
@json_option
def dead(stream: str, url: str, limit: int, event_type: str | None, code: str | None, json: bool) -> None:
    """List the dead letters of a stream, the latest first."""
    from kingdom.bus.delivery import dead_document, format_optional_time

    letters, streams = with_bus(url, lambda bus: _dead_letters(bus, stream, limit, event_type, code))
    if json:
        output.print_json({"stream": stream, "deadLetters": [dead_document(letter) for letter in letters]})
    elif letters:
        rows = [
            (
                letter.event_id,
                letter.envelope.type,
                letter.attempts,
                letter.error_code or "–",
                format_optional_time(letter.dead_at),
                letter.error_message or "",
            )
            for letter in letters
        ]
        output.print_table(("event", "type", "attempts", "code", "dead since", "why"), rows, right=("attempts",))
    elif stream in streams:
        output.say(f"no dead letters in {stream}" + (" match" if event_type or code else ""))
    else:
        known = f"the streams here are: {', '.join(sorted(streams))}" if streams else "there are no streams here yet"
        output.say(f"no dead letters, and no stream {stream}: {known}")


@command()
@argument("event_id", help="The id of the event.")
@url_option
@json_option
def show(event_id: str, url: str, json: bool) -> None:
    """Show one event: its state, its errors and its payload."""
    from kingdom.bus.delivery import record_document

    record = with_bus(url, lambda bus: bus.find(event_id))
    if record is None:
        raise output.CommandError(
            "NOT_FOUND", f"event {event_id} is not stored here: it was never published, or it was purged"
        )
    document = record_document(record)
    if json:
        output.print_json(document)
        return
    output.print_facts((key, str(value)) for key, value in document.items() if key != "envelope" and value is not None)
    output.say()
    output.say(jsonlib.dumps(document["envelope"], ensure_ascii=False, indent=2))


@command()
@url_option
@json_option
def doctor(url: str, json: bool) -> None:
    """Check the store of a bus for known problems.

    Exits 1 when a check finds an error.
    """
    report_checks(with_bus(url, lambda bus: bus.doctor()), json=json)


@command()
@url_option
@click.option("--port", type=click.IntRange(0, 65535), default=9464, help="The port to serve on; 0 takes a free one.")
@click.option("--host", default="127.0.0.1", help="The address to serve on.")
@click.option("--every", type=DURATION, default="15s", help="How often the store is read.")
@click.option("--prefix", default="kingdom", help="The prefix of the metric names.")
@json_option
def metrics(url: str, port: int, host: str, every: float, prefix: str, json: bool) -> None:
    """Serve the depths of the streams to Prometheus.

    Runs until interrupted.
    """
    with_bus(url, lambda bus: _serve_depths(bus, host, port, every, prefix, json))


# Shared with the commands of the court


def refuse_watch_with_json(json: bool) -> None:
    """Raise a usage error when ``--json`` stands beside ``--watch``."""
    if json:
        raise output.usage_error("--watch and --json cannot be combined: programs call the command again")


async def refresh(read: Callable[[], Awaitable[Sequence[output.Part]]], seconds: float) -> None:
    """Show something again and again, on a terminal in place of what was there; never returns."""
    import asyncio

    while True:
        parts = await read()
        click.clear()  # does nothing on a pipe
        output.show(*parts)
        await asyncio.sleep(seconds)


def report_checks(checks: Sequence[Check], *, json: bool) -> None:
    """Print the checks of a doctor, with hints for those that are not ok; exit 1 when one is an error."""
    from kingdom.bus.delivery import check_document

    healthy = all(check.level != "error" for check in checks)
    if json:
        output.print_json({"ok": healthy, "checks": [check_document(check) for check in checks]})
    else:
        rows = [(output.Styled(check.level, _CHECK_STYLES[check.level]), check.name, check.message) for check in checks]
        output.print_table(("", "check", "finding"), rows)
        for check in checks:
            if check.hint and check.level != "ok":
                output.say(f"{check.name}: {check.hint}")
    if not healthy:
        raise click.exceptions.Exit(output.FAILED)


@contextlib.contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int, *, json: bool) -> Iterator[None]:
    """Serve a registry to Prometheus for the length of the block, and print the address."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise output.CommandError(
            "CANNOT_SERVE", f"cannot serve on {host}:{port}: {error.strerror or error}; choose another --port or --host"
        ) from error
    address: dict[str, Any] = {"url": f"http://{host}:{server.server_port}/metrics"}
    try:
        if json:
            output.print_json(address)
        else:
            output.say(f"serving {address['url']} (Ctrl-C stops it)")
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _depth_view(bus: EventBus) -> list[output.Part]:
    return [_depth_table(await bus.depth())]


def _depth_table(depths: dict[str, Depth]) -> output.Table:
    rows = [
        (
            stream,
            f"{depth.pending:,}",
            f"{depth.processing:,}",
            output.Styled(f"{depth.dead:,}", "red" if depth.dead else ""),
            format_duration(depth.oldest_pending_seconds) if depth.pending else "–",
        )
        for stream, depth in sorted(depths.items())
    ]
    return output.Table(_DEPTH_COLUMNS, rows, right=_DEPTH_COLUMNS[1:])


async def _dead_letters(
    bus: EventBus, stream: str, limit: int, event_type: str | None, code: str | None
) -> tuple[list[DeadLetter], list[str]]:
    """Return the letters; when there are none, also the names of the streams."""
    from kingdom.bus.delivery import matching_letters

    letters = await matching_letters(bus, stream, limit, event_type, code)
    return letters, [] if letters else list(await bus.depth())


async def _serve_depths(bus: EventBus, host: str, port: int, every: float, prefix: str, json: bool) -> None:
    from prometheus_client import CollectorRegistry

    from kingdom.bus.metrics import Metrics

    metrics = Metrics(prefix)
    metrics.watch(bus)
    await metrics.sample()  # the first scrape finds values, and a store that is not set up is reported now
    registry = CollectorRegistry()
    metrics.register(registry)
    with serve_metrics(registry, host, port, json=json):
        await metrics.run(every)
