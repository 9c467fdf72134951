"""``kingdom workflow show``: one workflow, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.workflow.options import HomeOption, StoreOption, WorkflowWord
from kingdom.cli.workflow.session import in_store

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.workflow.overview import Overview
    from kingdom.workflow.ports import Store


def show(
    workflow: WorkflowWord,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only its plan, as a YAML file for `kingdom workflow modify --file`.")
    ] = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Show a workflow: its works and tasks, its repositories, its checkpoints."""
    if plan:
        _print_plan(workflow, home, store, json=json)
        return
    found = in_store(home, store, lambda opened: read(opened, workflow))
    if json:
        output.emit(found.document())
    else:
        print_overview(found)


def _print_plan(word: str, home: Path | None, store: str | None, *, json: bool) -> None:
    from kingdom.cli.workflow.modify import plan_text

    workflow, text = in_store(home, store, lambda opened: plan_text(opened, word))
    if json:
        output.emit({"id": workflow.id, "yaml": text})
    else:
        output.say(text.rstrip("\n"))


async def read(store: Store, word: str) -> Overview:
    """The workflow that is meant, with all that belongs to it."""
    from kingdom.cli.workflow.finding import find_workflow
    from kingdom.workflow.overview import Overview

    async with store.reading() as tx:
        return await Overview.read(tx, await find_workflow(tx, word))


def print_overview(found: Overview) -> None:
    """Show it to a person."""
    from kingdom.cli.workflow.overview import COLUMNS, rows

    workflow = found.workflow
    facts = [
        ("workflow", workflow.id),
        ("name", workflow.name),
        ("status", workflow.status + (f": {workflow.reason}" if workflow.reason else "")),
        ("issue", workflow.issue_key),
        ("template", workflow.template_id),
        ("forked from", workflow.forked_from),
        ("variables", ", ".join(f"{name}={value}" for name, value in workflow.variables.items())),
    ]
    for name, value in facts:
        if value:
            output.say(f"{name:<12}{value}")
    document = found.document()
    names = {work.id: work.name for work in found.works}
    for tree in document["repositories"]:
        state = (tree["status"] or "not made yet") + (f": {tree['error']}" if tree.get("error") else "")
        where = f" on {tree['branch']} in {tree['path']}" if tree.get("path") else ""
        whose = f" of {names[tree['workId']]}" if tree.get("workId") in names else ""
        output.say(f"{'repository':<12}{tree['name']}{whose} {state}{where}")
    output.say()
    output.print_table(COLUMNS, rows(found), right=("attempt",))
    if document["checkpoints"]:
        output.say()
        points = [
            (point["id"], point["workName"] or point["workId"], point["createdAt"][:19].replace("T", " "),
             " ".join(f"{name}@{commit[:12]}" for name, commit in point["hashes"].items()),
             "" if point["valid"] else "left behind")
            for point in document["checkpoints"]
        ]  # fmt: skip
        output.print_table(("checkpoint", "work", "made", "commits", ""), points)
