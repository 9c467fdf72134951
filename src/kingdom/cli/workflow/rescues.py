"""``kingdom workflow rescue``: what was dropped of a workflow and kept, and how to bring it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.cli import output
from kingdom.cli.options import json_option, store_option, workflow_argument, workflow_home_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import find_workflow_home, open_workflow_store, run_async, utc_now
from kingdom.cli.workflow.names import choose, find_workflow, workflow_word

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.rescues import KeptWork, RestoredWork


_MAX_SHOWN_FILES: Final = 10


@group("rescue")
def app() -> None:
    """List and restore what was dropped of a workflow, and kept."""


@command()
@workflow_argument
@workflow_home_option
@store_option
@json_option
def ls(workflow: str, home: Path | None, store: str | None, json: bool) -> None:
    """List what was dropped when a workflow went back, and kept."""
    place = find_workflow_home(home, store)
    found, kept = run_async(lambda: _read(place, workflow))
    if json:
        output.print_json({"workflowId": found.id, "rescues": [one.document() for one in kept]})
    elif kept:
        print_rescues(kept, workflow_word(found))
    else:
        output.say(f"nothing of {found.name} was dropped")


@command()
@workflow_argument
@argument("rescue", help="Its name, or the start or end of it.")
@workflow_home_option
@store_option
@json_option
def restore(workflow: str, rescue: str, home: Path | None, store: str | None, json: bool) -> None:
    """Bring the files of a rescue back into the worktree.

    The branch does not move: the next checkpoint has the files. What they replace is kept under a rescue of its own.
    """
    place = find_workflow_home(home, store)
    found, kept, restored = run_async(lambda: _restore(place, workflow, rescue))
    if json:
        output.print_json({"workflowId": found.id, **kept.document(), **restored._asdict()})
        return
    output.say(f"{restored.path} has the files of {kept.id} again")
    if restored.replaced:
        output.say(f"what was there is kept as {restored.replaced.rpartition('/')[2]}")


def print_rescues(kept: list[KeptWork], word: str) -> None:
    """Print when each rescue was made, which files are in it, and the command that brings them back."""
    from kingdom.cli.workflow.view import line_counts

    for one in kept:
        at = f"{one.rescue.at.astimezone():%Y-%m-%d %H:%M}"
        count = output.plural(len(one.files), "file")
        output.say(f"rescue of {one.git.name}, {at}: {count}. {one.rescue.title}")
        rows = [(f"  {file.status}", file.path, line_counts(file)) for file in one.files[:_MAX_SHOWN_FILES]]
        if rows:
            output.show(output.Table(("  change", "file", "lines"), rows, right=("lines",)))
        if len(one.files) > len(rows):
            output.say(f"  … and {len(one.files) - len(rows)} more")
        output.say(f"  kingdom workflow rescue restore {word} {one.id}")


async def _read(place: WorkflowHome, word: str) -> tuple[Workflow, list[KeptWork]]:
    from kingdom.workflow.home import git_service
    from kingdom.workflow.rescues import read_rescues

    async with open_workflow_store(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
        return workflow, await read_rescues(store, git_service(place, utc_now), workflow)


async def _restore(place: WorkflowHome, word: str, rescue: str) -> tuple[Workflow, KeptWork, RestoredWork]:
    from kingdom.workflow.home import git_service
    from kingdom.workflow.rescues import read_rescues, restore_rescue

    service = git_service(place, utc_now)
    async with open_workflow_store(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
        listing = f"kingdom workflow rescue ls {workflow_word(workflow)}"
        kept = choose(await read_rescues(store, service, workflow), rescue, "rescue", listing, lambda one: one.id)
        return workflow, kept, await restore_rescue(store, service, workflow, kept)


for _command in (ls, restore):
    app.add_command(_command)
