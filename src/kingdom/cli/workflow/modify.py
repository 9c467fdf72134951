"""``kingdom workflow modify``: the plan of a workflow, edited as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Yes
from kingdom.cli.workflow.keeping import known_engines, problems_told
from kingdom.cli.workflow.options import HomeOption, StoreOption, WorkflowWord
from kingdom.cli.workflow.session import in_parts, in_store

if TYPE_CHECKING:
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.plan_changes import Told
    from kingdom.workflow.ports import Store


def modify(
    workflow: WorkflowWord,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="PLAN",
            help="The plan as it shall be (kingdom workflow show --plan prints it); else your editor opens.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    yes: Yes = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Change what is not done yet of a workflow: works, tasks, their order, repositories, MCP servers.

    Works and tasks are known by their names. It must not be running: pause it first.
    """
    found, before = in_store(home, store, lambda opened: plan_text(opened, workflow))
    plan = _edited(before) if file is None else file  # one with mistakes stays, to be mended and given with --file
    text = _read(plan)
    with problems_told(json=json):
        changes = in_store(home, store, lambda opened: _changes(opened, found.id, text, str(plan)))
    words = [told for told, _ in changes]
    if not json:
        for line in words or ["nothing changes"]:
            output.say(line)
    if changes and not dry_run:
        if file is None:
            output.confirm(f"Change {found.name} so?", yes=yes)
        in_parts(home, store, lambda parts: _apply(parts, found.id, changes))
    if file is None:
        plan.unlink(missing_ok=True)
    if json:
        output.emit({"id": found.id, "changes": words, "made": bool(changes) and not dry_run})
    elif changes and not dry_run:
        output.say(f"the plan of {found.name} is changed")


async def plan_text(store: Store, word: str) -> tuple[Workflow, str]:
    """The workflow that is meant, and its plan as a file."""
    from kingdom.cli.workflow.finding import find_workflow
    from kingdom.workflow.plan_changes import plan_of
    from kingdom.workflow.sources import read_sources
    from kingdom.workflow.templates import write_template

    sources = await read_sources(store)
    async with store.reading() as tx:
        workflow = await find_workflow(tx, word)
        works = await tx.works.of_workflow(workflow.id)
    return workflow, write_template(plan_of(workflow, works), sources)


async def _changes(store: Store, workflow_id: str, text: str, name: str) -> list[Told]:
    from kingdom.workflow.plan_changes import plan_changes
    from kingdom.workflow.sources import read_sources
    from kingdom.workflow.templates import parse_template

    wanted = parse_template(text, name, workflow_id, await read_sources(store), known_engines())
    async with store.reading() as tx:
        workflow = await tx.workflows.get(workflow_id)
        workflow.check_modifiable()
        return plan_changes(workflow, await tx.works.of_workflow(workflow_id), wanted)


async def _apply(parts: Parts, workflow_id: str, changes: list[Told]) -> None:
    from kingdom.workflow.usecases.modify_workflow import ModifyWorkflow

    await ModifyWorkflow(parts).execute(workflow_id, [change for _, change in changes])


def _read(file: Path) -> str:
    from kingdom.cli.workflow.session import errors_told
    from kingdom.yamlfile import read_text

    with errors_told():
        return read_text(file)


def _edited(text: str) -> Path:
    """A file with the plan as a person left it in the editor."""
    import os
    import shlex
    import subprocess
    import sys
    import tempfile

    if not sys.stdin.isatty():
        raise output.Failure(
            "NO_EDITOR",
            "nobody is here to edit: kingdom workflow show WORKFLOW --plan prints the plan, --file takes it changed",
            output.MISUSED,
        )
    handle, name = tempfile.mkstemp(prefix="kingdom-plan-", suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        ended = subprocess.run([*shlex.split(editor), name], check=False)  # noqa: S603 - the user's own editor
    except (OSError, ValueError) as error:
        raise output.Failure("NO_EDITOR", f"the editor {editor!r} does not start (VISUAL, EDITOR): {error}") from error
    if ended.returncode:
        raise output.Failure("NO_EDITOR", f"{editor} ended with {ended.returncode}: nothing is changed ({name})")
    return Path(name)
