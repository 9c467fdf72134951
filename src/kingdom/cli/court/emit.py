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
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended, or a person is asked; exit 1 if it went wrong.")
    ] = False,
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
    if not json:
        output.say(document["id"] if accepted else f"{document['id']} was there before: nothing changed")
    elif not wait:
        output.emit({"id": document["id"], "accepted": accepted})
    if wait:
        _wait(home, document["id"], accepted=accepted, json=json)


def _wait(home: Path | None, event_id: str, *, accepted: bool, json: bool) -> None:
    from dataclasses import asdict

    from kingdom.court.waiting import wait_for_end

    known = in_court(home, lambda services: wait_for_end(services, event_id))
    if json:
        output.emit({"id": event_id, "accepted": accepted, **asdict(known)})
    elif known.status == "needs_human":
        output.say(f'{known.task_id} asks: {known.summary} (kingdom answer {known.task_id} "…")')
    else:
        output.say(f"{known.task_id or 'no task'}: {known.result or known.status}. {known.summary}".rstrip(". "))
    if not known.good and known.status != "needs_human":
        raise typer.Exit(output.FAILED)


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
