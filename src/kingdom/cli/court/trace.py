"""``kingdom trace``: the whole story of an id."""

from __future__ import annotations

from typing import Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import in_court
from kingdom.cli.home import HomeOption


def trace(
    traced: Annotated[str, typer.Argument(metavar="ID", help="The id of an event, a task or a message.")],
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Tell the whole story of an event, a task or a message, in time order, from every file that knows of it."""
    from kingdom.court.story import tell

    lines = in_court(home, lambda services: tell(services, traced))
    if not lines:
        raise output.Failure(
            "NOT_FOUND", f"nothing here knows {traced}: kingdom task ls lists tasks, kingdom status what went wrong"
        )
    documents = [line.document() for line in lines]
    if json:
        output.emit({"id": traced, "story": documents})
    else:
        rows = [(line["ts"][:10], line["ts"][11:-1], line["who"], line["what"], line["where"]) for line in documents]
        output.print_table(("date", "time", "who", "what", "where"), rows)
