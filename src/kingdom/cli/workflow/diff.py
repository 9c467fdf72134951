"""``kingdom workflow diff``: what changed up to a checkpoint, or from one to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.workflow.options import CheckpointWord, HomeOption, StoreOption
from kingdom.cli.workflow.place import find_place
from kingdom.cli.workflow.session import now, opened, told

if TYPE_CHECKING:
    from kingdom.workflow.comparing import Change
    from kingdom.workflow.domain.resources import Checkpoint
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import Transaction

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def diff(
    checkpoint: CheckpointWord,
    other: Annotated[
        str | None,
        typer.Argument(metavar="[CHECKPOINT]", help="From the first to this one.", show_default=False),
    ] = None,
    workflow: Annotated[
        str | None,
        typer.Option(metavar="WORKFLOW", help="Whose; then names of works will do.", show_default=False),
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="From where the branch began, not from the last one.")] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Only which files, and how many lines.")] = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Show what the work of a checkpoint changed, or what changed from one checkpoint to another."""
    if other is not None and base:
        raise output.misuse("--base goes with one checkpoint: give a second one or --base, not both")
    place = find_place(home, store)
    changes = told(lambda: _changes(place, (checkpoint, other), workflow, base=base, patches=not stat))
    if json:
        output.emit({"repositories": [_document(change) for change in changes]})
        return
    for change in changes:
        _print(change, stat=stat)
    if not any(change.files for change in changes):
        output.say("nothing changed")


async def _changes(
    place: WorkflowHome, words: tuple[str, str | None], workflow: str | None, *, base: bool, patches: bool
) -> list[Change]:
    from kingdom.workflow.comparing import compare
    from kingdom.workflow.home import git_service

    async with opened(place) as store:
        async with store.reading() as tx:
            first = await _checkpoint(tx, words[0], workflow)
            second = None if words[1] is None else await _checkpoint(tx, words[1], workflow)
        older, newer = (None, first) if second is None else (first, second)
        return await compare(store, git_service(place, now), newer, older, base=base, patches=patches)


async def _checkpoint(tx: Transaction, word: str, workflow: str | None) -> Checkpoint:
    from kingdom.cli.workflow.finding import choose, find_checkpoint, find_workflow

    if workflow is not None:
        return await find_checkpoint(tx, await find_workflow(tx, workflow), word)
    if (exact := await tx.checkpoints.find(word)) is not None and exact.complete:
        return exact
    points = [point for point in await tx.checkpoints.list(limit=100_000) if point.complete]
    return choose(points, word, "checkpoint", "kingdom workflow show WORKFLOW", lambda _: "")


def _document(change: Change) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": change.git.name,
        "gitId": change.git.id,
        "from": change.older,
        "to": change.newer,
        "files": [asdict(file) for file in change.files],
    }


def _print(change: Change, *, stat: bool) -> None:
    from rich.text import Text

    console = output.console()
    console.print(Text(output.clean(f"{change.git.name}  {change.older[:12]}..{change.newer[:12]}"), "bold"))
    if stat:
        rows = [
            (file.path if file.old_path is None else f"{file.old_path} → {file.path}", file.status,
             "binary" if file.binary else f"+{file.added} -{file.removed}")
            for file in change.files
        ]  # fmt: skip
        output.print_table(("file", "change", "lines"), rows, right=("lines",))
        return
    for file in change.files:
        if file.patch is None:
            output.say(f"{file.status} {file.path} (binary)")
            continue
        for line in file.patch.splitlines():
            console.print(Text(output.clean(line), _STYLES.get(line[:1], "")), soft_wrap=True)
        if file.truncated:
            output.say(f"… {file.path}: the rest is too long to show")
