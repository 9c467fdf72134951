"""``kingdom workflow diff``: what changed up to a checkpoint, or from one to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.workflow.options import CheckpointWord, HomeOption, StoreOption
from kingdom.cli.workflow.place import find_place
from kingdom.cli.workflow.session import opened, told

if TYPE_CHECKING:
    from kingdom.gitops import FileDiff
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.domain.resources import Checkpoint
    from kingdom.workflow.domain.sources import Git
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import Transaction

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class Change:
    """What changed in one repository."""

    git: Git
    older: str
    newer: str
    files: list[FileDiff]


@dataclass(frozen=True, slots=True)
class _Span:
    git: Git
    older: str | None  # None: where the worktree's branch began
    newer: str


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
    from kingdom.cli.workflow.gits import git_service

    service = git_service(place)
    async with opened(place) as store, store.reading() as tx:
        first = await _checkpoint(tx, words[0], workflow)
        if words[1] is None:
            before = None if base else await _before(tx, first)
            spans = await _spans(tx, before, first)
        else:
            second = await _checkpoint(tx, words[1], workflow)
            if second.workflow_id != first.workflow_id:
                raise output.Failure(
                    "OTHER_WORKFLOW", f"{first.id} is of {first.workflow_id}, {second.id} of {second.workflow_id}"
                )
            spans = await _spans(tx, first, second)
        begins = await _begins(tx, first.workflow_id, service, spans)
    return [
        Change(
            span.git,
            older := span.older or begins[span.git.id],
            span.newer,
            await service.diff(span.git, older, span.newer, patches=patches),
        )
        for span in spans
    ]


async def _checkpoint(tx: Transaction, word: str, workflow: str | None) -> Checkpoint:
    from kingdom.cli.workflow.finding import choose, find_checkpoint, find_workflow

    if workflow is not None:
        return await find_checkpoint(tx, await find_workflow(tx, workflow), word)
    if (exact := await tx.checkpoints.find(word)) is not None and exact.complete:
        return exact
    points = [point for point in await tx.checkpoints.list(limit=100_000) if point.complete]
    return choose(points, word, "checkpoint", "kingdom workflow show WORKFLOW", lambda _: "")


async def _before(tx: Transaction, point: Checkpoint) -> Checkpoint | None:
    """The checkpoint its Work began at: the last one made before it, of a Work that stands before it."""
    from kingdom.workflow.domain.plan import Plan

    works = await tx.works.of_workflow(point.workflow_id)
    plan = Plan(works)
    own = next((work for work in works if work.id == point.work_id), None)
    earlier = plan.before(own) if own is not None else set()
    if own is not None and not plan.apart(own):
        # What ran beside others reached this tree by being merged: it counts as changed.
        earlier -= {work.id for work in works if plan.apart(work)}
    points = [
        other
        for other in await tx.checkpoints.of_workflow(point.workflow_id)
        if other.complete and other.work_id in earlier and other.created_at <= point.created_at
    ]
    return max(points, key=lambda other: (other.created_at, other.work_sequence), default=None)


async def _spans(tx: Transaction, older: Checkpoint | None, newer: Checkpoint) -> list[_Span]:
    spans = []
    for git_id, commit in newer.hashes.items():
        git = await tx.gits.find(git_id)
        if git is None:
            raise output.Failure("NOT_FOUND", f"the repository {git_id} of {newer.id} was deleted (kingdom git ls)")
        spans.append(_Span(git, None if older is None else older.hashes.get(git_id), commit))
    return spans


async def _begins(tx: Transaction, workflow_id: str, service: GitopsService, spans: list[_Span]) -> dict[str, str]:
    """Where the branches began, of the repositories that have no older checkpoint."""
    wanted = {span.git.id for span in spans if span.older is None}
    trees = [tree for tree in await tx.work_trees.of_workflow(workflow_id) if tree.git_id in wanted]
    trees.sort(key=lambda tree: tree.work_id is None)  # the workflow's own trees count, those of works only without
    return {tree.git_id: service.base(tree) for tree in trees}


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
