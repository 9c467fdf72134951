"""``kingdom emit``: put an event into a court."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import in_court
from kingdom.cli.home import HomeOption


def emit(
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="The type, as github.pr.review_requested.")],
    source: Annotated[str, typer.Option(metavar="NAME", help="Where it comes from.")] = "console",
    repo: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="The repository it is about.", show_default=False)
    ] = None,
    payload: Annotated[
        str, typer.Option(metavar="JSON|@FILE", help="A JSON object, or @ and the file that holds it.")
    ] = "{}",
    priority: Annotated[str, typer.Option(metavar="high|normal|low", help="How urgent it is.")] = "normal",
    event_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Its id; one that was seen before is left out.", show_default=False),
    ] = None,
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Put an event into the court.

    It is durable when the command returns, and taken up at once when the court is up, or else when it is next.
    """
    document: dict[str, Any] = {
        "type": event_type,
        "source": source,
        "repo": repo,
        "payload": _payload(payload),
        "priority": priority,
    }
    from kingdom.bus.ids import new_event_id
    from kingdom.court.commands import inject

    document["id"] = event_id or f"evt-console-{new_event_id()}"
    accepted = in_court(home, lambda services: inject(services, document))
    if json:
        output.emit({"id": document["id"], "accepted": accepted})
    else:
        output.say(document["id"] if accepted else f"{document['id']} was there before: nothing changed")


def _payload(text: str) -> dict[str, Any]:
    where = "--payload"
    if text.startswith("@"):
        where = text[1:]
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise output.misuse(f"--payload {text}: {error}") from None
    try:
        document = jsonlib.loads(text)
    except ValueError as error:
        raise output.misuse(f"{where}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise output.misuse(f"{where}: the payload must be a JSON object ({{…}}), not {type(document).__name__}")
    return document
