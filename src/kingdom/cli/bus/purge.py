"""``kingdom bus purge``: forget what is finished."""

from __future__ import annotations

from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Url, Yes
from kingdom.cli.bus.session import on_bus
from kingdom.cli.durations import format_duration, parse_duration


def purge(
    url: Url,
    older_than: Annotated[
        float,
        typer.Option(
            parser=parse_duration, metavar="DURATION", help="Only what ended longer ago than this: 30s, 15m, 2h, 7d."
        ),
    ],
    stream: Annotated[str | None, typer.Option(metavar="STREAM", help="Only this stream.", show_default=False)] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Forget dead letters too, not only finished events.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Forget finished events. A forgotten event id may be published again."""
    what = "DONE and DEAD" if dead else "DONE"
    where = f"stream {stream}" if stream else "every stream"
    output.confirm(f"Forget {what} events of {where} that ended over {format_duration(older_than)} ago?", yes=yes)
    purged = on_bus(url, lambda bus: bus.purge(older_than, stream=stream, dead=dead))
    if json:
        output.emit({"purged": purged})
    else:
        output.say(f"{purged} event{'' if purged == 1 else 's'} forgotten")
