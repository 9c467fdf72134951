"""``kingdom bus dead``: what failed for good, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import ErrorCode, EventType, Json, Stream, Url
from kingdom.cli.bus.session import on_bus

if TYPE_CHECKING:
    from kingdom.bus import DeadLetter, EventBus


def dead(
    stream: Stream,
    url: Url,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    event_type: EventType = None,
    code: ErrorCode = None,
    json: Json = False,
) -> None:
    """List the dead letters of a stream, the latest first."""
    from kingdom.bus.looking import dead_document, moment

    letters, streams = on_bus(url, lambda bus: _look(bus, stream, limit, event_type, code))
    if json:
        output.emit({"stream": stream, "deadLetters": [dead_document(letter) for letter in letters]})
    elif letters:
        rows = [
            (
                letter.event_id,
                letter.envelope.type,
                letter.attempts,
                letter.error_code or "–",
                moment(letter.dead_at),
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


async def _look(
    bus: EventBus, stream: str, limit: int, event_type: str | None, code: str | None
) -> tuple[list[DeadLetter], list[str]]:
    from kingdom.bus.looking import matching_letters

    letters = await matching_letters(bus, stream, limit, event_type, code)
    return letters, [] if letters else list(await bus.depth())
