"""``kingdom bus requeue``: give dead events another chance."""

from __future__ import annotations

from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import ErrorCode, EventType, Json, Stream, Url, Yes
from kingdom.cli.bus.session import on_bus

_COUNTED = 1000  # dead letters counted for the question; beyond, it says "at least"


def requeue(
    stream: Stream,
    url: Url,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="EVENT_ID", help="This event, dead or done; may be given more than once."),
    ] = None,
    event_type: EventType = None,
    code: ErrorCode = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead event of the stream.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Move dead events back to pending, with a fresh count of attempts: by id, by type, by error code, or all."""
    filtered = event_type is not None or code is not None
    if [bool(ids), filtered, everything].count(True) != 1:
        raise output.misuse("say which events to requeue: --id (once or more), or --type and/or --code, or --all")
    if not yes:
        output.confirm(_question(url, stream, ids, event_type, code), yes=False)
    moved = on_bus(
        url,
        lambda bus: bus.requeue(stream, ids or None, event_type=event_type, error_code=code, everything=everything),
    )
    if json:
        output.emit({"stream": stream, "requeued": moved})
    else:
        output.say(f"{moved} event{'' if moved == 1 else 's'} of {stream} requeued")


def _question(url: str, stream: str, ids: list[str] | None, event_type: str | None, code: str | None) -> str:
    from kingdom.bus.looking import matching_letters

    if ids:
        return f"Requeue {len(ids)} event(s) of {stream} by id?"
    letters = on_bus(url, lambda bus: matching_letters(bus, stream, _COUNTED, event_type, code))
    count = f"at least {_COUNTED}" if len(letters) == _COUNTED else str(len(letters))
    narrowed = [f"of type {event_type}"] if event_type else []
    narrowed += [f"with the code {code}"] if code else []
    return f"Requeue {' '.join([count, 'dead event(s)', *narrowed])} of {stream}?"
