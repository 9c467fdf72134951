"""``kingdom workflow fork``: a second workflow from a checkpoint of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.workflow.options import HomeOption, StoreOption, WorkflowWord
from kingdom.cli.workflow.session import in_parts

if TYPE_CHECKING:
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.parts import Parts


def fork(
    workflow: WorkflowWord,
    checkpoint: Annotated[str, typer.Option("--from", metavar="CHECKPOINT", help="Its id, or the name of its work.")],
    name: Annotated[str | None, typer.Option(help="What to call it; else as the first.", show_default=False)] = None,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Make a second workflow that goes on from a checkpoint, on branches of its own. The first stays as it is."""
    made = in_parts(home, store, lambda parts: _fork(parts, workflow, checkpoint, name))
    if json:
        from kingdom.workflow.overview import summary

        output.emit({**summary(made), "forkedFrom": made.forked_from})
    else:
        output.say(f"{made.id} is made, from {made.forked_from}: kingdom workflow start {made.id}")


async def _fork(parts: Parts, word: str, checkpoint: str, name: str | None) -> Workflow:
    from kingdom.cli.workflow.finding import find_checkpoint, find_workflow
    from kingdom.workflow.usecases.fork_workflow import ForkWorkflow

    async with parts.store.reading() as tx:
        first = await find_workflow(tx, word)
        point = await find_checkpoint(tx, first, checkpoint)
    workflow_id = await ForkWorkflow(parts).execute(point.id, name=name)
    async with parts.store.reading() as tx:
        return await tx.workflows.get(workflow_id)
