"""``kingdom bus ls``: what a worker would get next."""

from __future__ import annotations

from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import EventType, Json, Stream, Url
from kingdom.cli.bus.session import on_bus


def ls(
    stream: Stream,
    url: Url,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    event_type: EventType = None,
    json: Json = False,
) -> None:
    """List what could be claimed from a stream now, the first in line first. Nothing is claimed."""
    from kingdom.bus.looking import moment, record_document

    types = None if event_type is None else [event_type]
    records = on_bus(url, lambda bus: bus.peek(stream, limit=limit, types=types))
    if json:
        output.emit({"stream": stream, "events": [record_document(record) for record in records]})
    elif records:
        rows = [
            (
                record.envelope.event_id,
                record.envelope.type,
                record.envelope.priority,
                record.attempts,
                moment(record.created_at),
            )
            for record in records
        ]
        output.print_table(("event", "type", "priority", "attempts", "published"), rows, right=("attempts",))
    else:
        output.say(f"nothing in {stream} can be claimed now; `kingdom bus depth` counts what waits, is held or dead")
