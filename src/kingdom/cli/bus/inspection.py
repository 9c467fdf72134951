"""Commands that look at a bus: depth, ls, dead, show, doctor, metrics."""

from __future__ import annotations

import contextlib
import json as jsonlib
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kingdom.cli import output
from kingdom.cli.options import (
    ErrorCodeOption,
    EventTypeOption,
    JsonOption,
    StreamArgument,
    UrlOption,
    format_duration,
    parse_duration,
)
from kingdom.cli.session import with_bus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import CollectorRegistry
    from rich.table import Table

    from kingdom.bus import Check, DeadLetter, Depth, EventBus


# ``kingdom bus depth``: how full the streams are.


_DEPTH_COLUMNS = ("stream", "pending", "processing", "dead", "oldest")


def depth(
    url: UrlOption,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking, until interrupted.")] = False,
    every: Annotated[
        float, typer.Option(parser=parse_duration, metavar="DURATION", help="How often --watch looks.")
    ] = "1s",  # type: ignore[assignment]  # typer parses defaults as well
    json: JsonOption = False,
) -> None:
    """Show how many events wait, are held and are dead in each stream."""
    from kingdom.bus.delivery import depth_document

    if watch and json:
        raise output.usage_error("--watch is for people and --json for programs, which ask again: give one of them")
    if watch:
        with_bus(url, lambda bus: _watch_depth(bus, every))
        return
    depths = with_bus(url, lambda bus: bus.depth())
    if json:
        output.print_json({"streams": [depth_document(stream, depths[stream]) for stream in sorted(depths)]})
    elif depths:
        output.console().print(_depth_table(depths))
    else:
        output.say("no streams yet: nothing was ever published here")


def _depth_table(depths: dict[str, Depth]) -> Table:
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
    return output.table(_DEPTH_COLUMNS, rows, right=_DEPTH_COLUMNS[1:])


async def _watch_depth(bus: EventBus, every: float) -> None:
    import asyncio

    from rich.live import Live

    console = output.console()
    if not sys.stdout.isatty():
        while True:
            console.print(_depth_table(await bus.depth()))
            await asyncio.sleep(every)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_depth_table(await bus.depth()), refresh=True)
            await asyncio.sleep(every)


# ``kingdom bus ls``: what a worker would get next.


def ls(
    stream: StreamArgument,
    url: UrlOption,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    event_type: EventTypeOption = None,
    json: JsonOption = False,
) -> None:
    """List what could be claimed from a stream now, the first in line first. Nothing is claimed."""
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
        output.say(f"nothing in {stream} can be claimed now; `kingdom bus depth` counts what waits, is held or dead")


# ``kingdom bus dead``: what failed for good, and why.


def dead(
    stream: StreamArgument,
    url: UrlOption,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    event_type: EventTypeOption = None,
    code: ErrorCodeOption = None,
    json: JsonOption = False,
) -> None:
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


async def _dead_letters(
    bus: EventBus, stream: str, limit: int, event_type: str | None, code: str | None
) -> tuple[list[DeadLetter], list[str]]:
    from kingdom.bus.delivery import matching_letters

    letters = await matching_letters(bus, stream, limit, event_type, code)
    return letters, [] if letters else list(await bus.depth())


# ``kingdom bus show``: everything known of one event.


def show(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The id of the event.")],
    url: UrlOption,
    json: JsonOption = False,
) -> None:
    """Show one event: its state, its errors and its payload."""
    from kingdom.bus.delivery import record_document

    record = with_bus(url, lambda bus: bus.find(event_id))
    if record is None:
        raise output.CommandError("NOT_FOUND", f"no event {event_id} is stored here: never published, or purged since")
    document = record_document(record)
    if json:
        output.print_json(document)
        return
    facts = [(key, value) for key, value in document.items() if key != "envelope" and value is not None]
    width = max(len(key) for key, _ in facts)
    for key, value in facts:
        output.say(f"{key:<{width}}  {value}")
    output.say()
    output.say(jsonlib.dumps(document["envelope"], ensure_ascii=False, indent=2))


# ``kingdom bus doctor``: what is wrong, or about to be.


_CHECK_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(url: UrlOption, json: JsonOption = False) -> None:
    """Check what tends to go wrong with this store; exits 1 when something is wrong now."""
    from kingdom.bus.delivery import check_document

    checks = with_bus(url, lambda bus: bus.doctor())
    healthy = all(check.level != "error" for check in checks)
    if json:
        output.print_json({"ok": healthy, "checks": [check_document(check) for check in checks]})
    else:
        print_checks(checks)
    if not healthy:
        raise typer.Exit(output.FAILED)


def print_checks(checks: Sequence[Check]) -> None:
    """Print findings for people: a table, and below it what to do about those that are not well."""
    rows = [(output.styled(check.level, _CHECK_STYLES[check.level]), check.name, check.message) for check in checks]
    output.print_table(("", "check", "finding"), rows)
    for check in checks:
        if check.hint and check.level != "ok":
            output.say(f"{check.name}: {check.hint}")


# ``kingdom bus metrics``: the depths of a bus for Prometheus, beside whatever works on it.


def metrics(
    url: UrlOption,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to serve on; 0 takes a free one.")] = 9464,
    host: Annotated[str, typer.Option(help="The address to serve on.")] = "127.0.0.1",
    every: Annotated[
        float, typer.Option(parser=parse_duration, metavar="DURATION", help="How often the store is asked.")
    ] = "15s",  # type: ignore[assignment]  # typer parses defaults as well
    prefix: Annotated[str, typer.Option(help="What the names of the metrics start with.")] = "kingdom",
    json: JsonOption = False,
) -> None:
    """Serve the depths of the streams to Prometheus, until interrupted."""
    with_bus(url, lambda bus: _serve_depths(bus, host, port, every, prefix, json))


async def _serve_depths(bus: EventBus, host: str, port: int, every: float, prefix: str, json: bool) -> None:
    from prometheus_client import CollectorRegistry

    from kingdom.bus.metrics import Metrics

    watching = Metrics(prefix)
    watching.watch(bus)
    await watching.sample()  # so that the first scrape finds something, and a store that is not set up is said now
    registry = CollectorRegistry()
    watching.register(registry)
    with serve_metrics(registry, host, port, json=json):
        await watching.run(every)


# Serving metrics to Prometheus for as long as a command runs.


@contextlib.contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int, *, json: bool) -> Iterator[None]:
    """Serve a registry, and say where."""
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
            output.say(f"serving {address['url']} (Ctrl-C ends it)")
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
