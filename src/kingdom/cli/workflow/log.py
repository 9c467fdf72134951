"""``kingdom workflow log``: what happened to a workflow, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.workflow.options import HomeOption, StoreOption, WorkflowWord
from kingdom.cli.workflow.session import in_store

if TYPE_CHECKING:
    from kingdom.workflow.ports import SeenEvent, Store

_PAGE = 500


def log(
    workflow: WorkflowWord,
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Only events behind this number.")] = 0,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print each event as a JSON line.")] = False,
) -> None:
    """Show the events of a workflow, in order. Their numbers have no gap."""
    in_store(home, store, lambda opened: _print(opened, workflow, after, json=json))


async def _print(store: Store, word: str, after: int, *, json: bool) -> None:
    from kingdom.cli.workflow.finding import find_workflow
    from kingdom.cli.workflow.telling import event_line
    from kingdom.workflow.telling import names_of

    async with store.reading() as tx:
        workflow = await find_workflow(tx, word)
        names = names_of(await tx.works.of_workflow(workflow.id))
    console = output.console()
    while page := await store.events(workflow.id, after, _PAGE):
        for event in page:
            if json:
                print_json_line(event_document(event))
            else:
                console.print(event_line(event, names), soft_wrap=True)
        after = page[-1].sequence


def event_document(event: SeenEvent) -> dict[str, Any]:
    """An event, for programs."""
    return {
        "sequence": event.sequence,
        "type": event.type,
        "occurredAt": event.occurred_at.isoformat(),
        "payload": event.payload,
    }


def print_json_line(document: dict[str, Any]) -> None:
    """A document as one line."""
    import json

    print(json.dumps(document, ensure_ascii=False), flush=True)  # noqa: T201
