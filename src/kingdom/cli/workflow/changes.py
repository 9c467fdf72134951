"""``kingdom workflow diff``, and what of a workflow is in no checkpoint."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from kingdom.cli import output
from kingdom.cli.options import checkpoint_argument, json_option, store_option, workflow_home_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import find_workflow_home, open_workflow_store, run_async, utc_now

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.workflow.checkpoints import RepositoryChange
    from kingdom.workflow.domain.resources import Checkpoint
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.store.transactions import WorkflowTransaction

_LINE_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_LONG_HASH: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")


@command()
@checkpoint_argument
@argument("other", required=False, metavar="[CHECKPOINT]", help="Compare the first checkpoint with this one.")
@click.option("--workflow", metavar="WORKFLOW", help="The workflow; the checkpoint may then be named by its work.")
@click.option("--base", is_flag=True, help="Compare with the start of the branch.")
@click.option("--stat", is_flag=True, help="Show only the files and the number of lines.")
@workflow_home_option
@store_option
@json_option
def diff(
    checkpoint: str,
    other: str | None,
    workflow: str | None,
    base: bool,
    stat: bool,
    home: Path | None,
    store: str | None,
    json: bool,
) -> None:
    """Show what changed up to a checkpoint or between two.

    With a workflow instead of a checkpoint: what its worktrees have that no checkpoint has yet, or, with --base, all
    that it has changed.
    """
    if other is not None and base:
        raise output.usage_error("--base takes one checkpoint: give a second one or --base, not both")
    place = find_workflow_home(home, store)
    changes, whole = run_async(lambda: _read_changes(place, (checkpoint, other), workflow, base=base, patches=not stat))
    if json:
        output.print_json({"repositories": [_change_document(change) for change in changes]})
        return
    for change in changes:
        _print_change(change, stat=stat)
    if not any(change.files for change in changes):
        more = f" since the last checkpoint: kingdom workflow diff {checkpoint} --base shows all that it has changed"
        output.say(f"nothing changed{more if whole and not base else ''}")


async def _read_changes(
    place: WorkflowHome, words: tuple[str, str | None], workflow: str | None, *, base: bool, patches: bool
) -> tuple[list[RepositoryChange], bool]:
    """Return what changed, and whether it is that of a whole workflow."""
    from kingdom.workflow.checkpoints import compare_checkpoints, compare_worktrees
    from kingdom.workflow.home import git_service

    async with open_workflow_store(place) as store:
        service = git_service(place, utc_now)
        async with store.reading() as tx:
            whole = None if words[1] or workflow else await _find_diff_workflow(tx, words[0])
        if whole is not None:
            return await compare_worktrees(store, service, whole.id, base=base, patches=patches), True
        async with store.reading() as tx:
            first = await _find_diff_checkpoint(tx, words[0], workflow)
            second = None if words[1] is None else await _find_diff_checkpoint(tx, words[1], workflow)
        older, newer = (None, first) if second is None else (first, second)
        return await compare_checkpoints(store, service, newer, older, base=base, patches=patches), False


async def _find_diff_workflow(tx: WorkflowTransaction, word: str) -> Workflow | None:
    """Return the workflow with this id, or beginning of an id, or name; None if there is none."""
    from kingdom.cli.workflow.names import find_workflow

    try:
        found = await find_workflow(tx, word)
    except output.CommandError as error:
        if error.code == "AMBIGUOUS":
            raise
        return None
    return found if found.name == word or found.id.startswith(word) else None


def _shown_lines(patch: str) -> list[str]:
    """Return the lines of a patch; on a terminal with short hashes, as no program reads them there."""
    lines = patch.splitlines()
    if not sys.stdout.isatty():
        return lines
    return [_LONG_HASH.sub(r"\1", line) if line.startswith("index ") else line for line in lines]


async def print_uncommitted(place: WorkflowHome, word: str) -> None:
    """Print which files have changes that no checkpoint has: what going back drops."""
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.checkpoints import compare_worktrees
    from kingdom.workflow.home import git_service

    async with open_workflow_store(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
        changes = await compare_worktrees(store, git_service(place, utc_now), workflow.id, patches=False)
    for change in changes:
        if change.files:
            output.say("dropped, and kept under a rescue ref:")
            _print_change(change, stat=True)


async def _find_diff_checkpoint(tx: WorkflowTransaction, word: str, workflow: str | None) -> Checkpoint:
    from kingdom.cli.workflow.names import choose, find_checkpoint, find_workflow

    if workflow is not None:
        return await find_checkpoint(tx, await find_workflow(tx, workflow), word)
    if (exact := await tx.checkpoints.find(word)) is not None and exact.complete:
        return exact
    points = [point for point in await tx.checkpoints.list(limit=100_000) if point.complete]
    return choose(points, word, "checkpoint", "kingdom workflow show WORKFLOW", lambda _: "")


def _change_document(change: RepositoryChange) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": change.git.name,
        "gitId": change.git.id,
        "from": change.older,
        "to": change.newer,
        "files": [asdict(file) for file in change.files],
    }


def _print_change(change: RepositoryChange, *, stat: bool) -> None:
    from kingdom.cli.workflow.view import line_counts

    output.show(output.Styled(f"{change.git.name}  {change.older[:12]}..{change.newer[:12]}", "bold"))
    if stat:
        rows = [
            (file.path if file.old_path is None else f"{file.old_path} → {file.path}", file.status, line_counts(file))
            for file in change.files
        ]
        output.print_table(("file", "change", "lines"), rows, right=("lines",))
        return
    for file in change.files:
        if file.patch is None:
            output.say(f"{file.status} {file.path} (binary)")
            continue
        for line in _shown_lines(file.patch):
            output.show(output.Styled(line, _LINE_STYLES.get(line[:1], "")))
        if file.truncated:
            output.say(f"… {file.path}: the rest is too long to show")
