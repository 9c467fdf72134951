"""``kingdom workflow rescue``: what was dropped of a workflow and kept, and how to bring it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kingdom.cli import output
from kingdom.cli.options import json_option, store_option, workflow_argument, workflow_home_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import find_workflow_home, open_workflow_store, run_async, utc_now
from kingdom.cli.workflow.names import choose, find_workflow, workflow_word

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.gitops.reset import Rescue
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.domain.resources import Git, WorkTree
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import WorkflowStore


class KeptWork(NamedTuple):
    """A rescue, with its repository."""

    id: str  # the last part of its ref
    git: Git
    rescue: Rescue

    def document(self) -> dict[str, Any]:
        """Return it as a JSON document."""
        return {
            "id": self.id,
            "repository": self.git.name,
            "ref": self.rescue.ref,
            "commit": self.rescue.commit,
            "madeAt": self.rescue.at.isoformat(),
            "why": self.rescue.title,
        }


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
        print_rescues(kept)
        output.say(f"kingdom workflow rescue restore {workflow_word(found)} RESCUE brings one back")
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
    found, kept, path, replaced = run_async(lambda: _restore(place, workflow, rescue))
    if json:
        output.print_json({"workflowId": found.id, **kept.document(), "path": path, "replaced": replaced})
        return
    output.say(f"{path} has the files of {kept.id} again")
    if replaced:
        output.say(f"what was there is kept as {replaced.rpartition('/')[2]}")


def print_rescues(kept: list[KeptWork]) -> None:
    """Print a table of rescues."""
    rows = [(one.id, one.git.name, f"{one.rescue.at.astimezone():%Y-%m-%d %H:%M}", one.rescue.title) for one in kept]
    output.print_table(("rescue", "repository", "made", "why"), rows)


async def read_rescues(store: WorkflowStore, service: GitopsService, workflow: Workflow) -> list[KeptWork]:
    """Return the rescues of a workflow in all its repositories, oldest first."""
    async with store.reading() as tx:
        ids = {ref.git_id for ref in workflow.git_refs}
        ids |= {tree.git_id for tree in await tx.work_trees.of_workflow(workflow.id)}
        gits = [git for git_id in sorted(ids) if (git := await tx.gits.find(git_id)) is not None]
    kept = [KeptWork(one.name, git, one) for git in gits for one in await service.rescues(git, workflow.id)]
    return sorted(kept, key=lambda one: one.rescue.at)


async def _read(place: WorkflowHome, word: str) -> tuple[Workflow, list[KeptWork]]:
    from kingdom.workflow.home import git_service

    async with open_workflow_store(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
        return workflow, await read_rescues(store, git_service(place, utc_now), workflow)


async def _restore(place: WorkflowHome, word: str, rescue: str) -> tuple[Workflow, KeptWork, str, str | None]:
    from kingdom.workflow.home import git_service

    service = git_service(place, utc_now)
    async with open_workflow_store(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
            trees = await tx.work_trees.of_workflow(workflow.id)
        if workflow.is_active:
            raise output.CommandError("NOT_NOW", f"{workflow.name} is {workflow.status}: pause it first")
        listing = f"kingdom workflow rescue ls {workflow_word(workflow)}"
        kept = choose(await read_rescues(store, service, workflow), rescue, "rescue", listing, lambda one: one.id)
        tree = _tree_of(service, trees, kept)
        return workflow, kept, str(tree.path), await service.restore(tree, kept.rescue)


def _tree_of(service: GitopsService, trees: list[WorkTree], kept: KeptWork) -> WorkTree:
    """Return the worktree that the files were dropped from; if it is gone, that of the workflow."""
    ready = [tree for tree in trees if tree.git_id == kept.git.id and tree.status == "READY"]
    same = [tree for tree in ready if service.name_of(tree) == kept.rescue.worktree]
    own = [tree for tree in ready if tree.work_id is None]
    if not (same or own):
        raise output.CommandError(
            "NO_WORKTREE",
            f"the worktree of {kept.git.name} is gone: the files are in the commit {kept.rescue.commit} of its clone",
        )
    return (same or own)[0]


for _command in (ls, restore):
    app.add_command(_command)
