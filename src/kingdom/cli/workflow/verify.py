"""``kingdom workflow verify``: whether every checkpoint can be gone back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.workflow.options import HomeOption, StoreOption
from kingdom.cli.workflow.place import find_place
from kingdom.cli.workflow.session import now, opened, told

if TYPE_CHECKING:
    from kingdom.workflow.home import WorkflowHome


def verify(
    workflow: Annotated[
        str | None, typer.Argument(metavar="[WORKFLOW]", help="Only this one; none: all.", show_default=False)
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Look for every file of every commit, too.")] = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Prove that checkpoints can be gone back to: each commit is there and held. Exits 1 when one is not."""
    place = find_place(home, store)
    checked, problems = told(lambda: _verify(place, workflow, deep=deep))
    if json:
        output.emit({"checked": checked, "problems": problems})
    else:
        for problem in problems:
            output.say(f"{problem['workflowId']} {problem['checkpointId']}: {problem['what']}")
        if not problems:
            output.say(f"{checked} checkpoints: every commit is there and held")
    if problems:
        raise typer.Exit(output.FAILED)


async def _verify(place: WorkflowHome, word: str | None, *, deep: bool) -> tuple[int, list[dict[str, Any]]]:
    from kingdom.cli.workflow.finding import find_workflow
    from kingdom.workflow.home import git_service
    from kingdom.workflow.proving import prove

    async with opened(place) as store:
        workflow_id = None
        if word is not None:
            async with store.reading() as tx:
                workflow_id = (await find_workflow(tx, word)).id
        proof = await prove(store, git_service(place, now), workflow_id, deep=deep)
    problems = [
        {"workflowId": one.recorded.workflow, "checkpointId": one.recorded.checkpoint, "what": one.what}
        for one in proof.problems
    ]
    return proof.checked, problems
