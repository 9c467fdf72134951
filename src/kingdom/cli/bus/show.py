"""``kingdom bus show``: everything known of one event."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Url
from kingdom.cli.bus.session import on_bus


def show(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The id of the event.")],
    url: Url,
    json: Json = False,
) -> None:
    """Show one event: its state, its errors and its payload."""
    from kingdom.bus.looking import record_document

    record = on_bus(url, lambda bus: bus.find(event_id))
    if record is None:
        raise output.Failure("NOT_FOUND", f"no event {event_id} is stored here: never published, or purged since")
    document = record_document(record)
    if json:
        output.emit(document)
        return
    facts = [(key, value) for key, value in document.items() if key != "envelope" and value is not None]
    width = max(len(key) for key, _ in facts)
    for key, value in facts:
        output.say(f"{key:<{width}}  {value}")
    output.say()
    output.say(jsonlib.dumps(document["envelope"], ensure_ascii=False, indent=2))
