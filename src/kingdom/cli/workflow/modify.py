"""``kingdom workflow modify``: change a plan, from a file or in an editor."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kingdom.cli import output
from kingdom.cli.options import PATH, json_option, store_option, workflow_argument, workflow_home_option, yes_option
from kingdom.cli.parsing import command
from kingdom.cli.session import with_store, with_workflows
from kingdom.cli.workflow.names import workflow_word
from kingdom.cli.workflow.plans import known_engines, list_problems, plan_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.templates import DescribedChange


@command()
@workflow_argument
@click.option(
    "--file",
    "-f",
    type=PATH,
    metavar="PLAN",
    help="The new plan (kingdom workflow show --plan prints the current one). Default: open an editor.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
@yes_option
@workflow_home_option
@store_option
@json_option
def modify(
    workflow: str, file: Path | None, dry_run: bool, yes: bool, home: Path | None, store: str | None, json: bool
) -> None:
    """Change the plan of a workflow where it is not done yet.

    Changes works, tasks, their order, repositories and MCP servers. Works and tasks are identified by their names. The
    workflow must not be running: pause it first.
    """
    if file is not None:
        found, changes = _changed(file, workflow, home, store, json=json, apply=not dry_run)
    else:
        before, text = with_store(home, store, lambda opened: _modifiable_plan(opened, workflow))
        with _written(text, workflow_word(before)) as plan:
            _open_editor(plan)
            found, changes = _changed_in_editor(plan, workflow, home, store, json=json, apply=yes and not dry_run)
            if changes and not yes and not dry_run:
                output.confirm(f"Apply these changes to {found.name}?", yes=False)
                with_workflows(home, store, lambda context: _apply(context, found.id, changes))
    if json:
        lines = [line for line, _ in changes]
        output.print_json({"id": found.id, "changes": lines, "made": bool(changes) and not dry_run})
    elif changes and not dry_run:
        output.say(f"the plan of {found.name} is changed")


def _changed(
    plan: Path, word: str, home: Path | None, store: str | None, *, json: bool, apply: bool
) -> tuple[Workflow, list[DescribedChange]]:
    """Say how a workflow differs from the plan in a file; apply the difference if wanted."""
    text, name = _read_plan(plan), str(plan)
    with list_problems(json=json):
        found, changes = with_workflows(
            home, store, lambda context: _change_plan(context, word, text, name, apply=apply)
        )
    if not json:
        for line in [line for line, _ in changes] or ["nothing changes"]:
            output.say(line)
    return found, changes


def _changed_in_editor(
    plan: Path, word: str, home: Path | None, store: str | None, *, json: bool, apply: bool
) -> tuple[Workflow, list[DescribedChange]]:
    """Do the same with what a person wrote, who may mend mistakes."""
    while True:
        try:
            return _changed(plan, word, home, store, json=json, apply=apply)
        except output.CommandError as error:
            output.print_error(error, as_json=False)
            if not click.confirm("Edit it again?", default=True, err=True):
                raise output.CommandError(error.code, "the plan was not changed", error.exit_code) from error
        _open_editor(plan)


async def _modifiable_plan(store: WorkflowStore, word: str) -> tuple[Workflow, str]:
    """Return the workflow and its plan as YAML; raise an error if it cannot be changed now."""
    workflow, text = await plan_text(store, word)
    workflow.check_modifiable()
    return workflow, text


async def _change_plan(
    context: WorkflowContext, word: str, text: str, name: str, *, apply: bool
) -> tuple[Workflow, list[DescribedChange]]:
    """Return the workflow and how its plan differs from ``text``; apply the difference if wanted."""
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.templates import parse_template, plan_changes, read_source_ids

    sources = await read_source_ids(context.store)
    async with context.store.reading() as tx:
        workflow = await find_workflow(tx, word)
        wanted = parse_template(text, name, workflow.id, sources, known_engines())
        workflow.check_modifiable()
        changes = plan_changes(workflow, await tx.works.of_workflow(workflow.id), wanted)
    if changes and apply:
        await _apply(context, workflow.id, changes)
    return workflow, changes


async def _apply(context: WorkflowContext, workflow_id: str, changes: list[DescribedChange]) -> None:
    from kingdom.workflow.usecases.workflows import modify_workflow

    await modify_workflow(context, workflow_id, [change for _, change in changes])


def _read_plan(file: Path) -> str:
    from kingdom.base.yamlfile import read_text
    from kingdom.cli.session import errors_reported

    with errors_reported():
        return read_text(file)


# ── the editor ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _written(text: str, word: str) -> Iterator[Path]:
    """Return a file with a plan to edit; if it is not applied, keep it and name the command that takes it."""
    import os
    import sys
    import tempfile

    if not sys.stdin.isatty():
        raise output.CommandError(
            "NO_EDITOR",
            "there is no terminal to edit on: print the plan with kingdom workflow show WORKFLOW --plan, "
            "change it, and pass it with --file",
            output.MISUSED,
        )
    handle, name = tempfile.mkstemp(prefix="kingdom-plan-", suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    plan = Path(name)
    try:
        yield plan
    except output.CommandError as error:
        if (kept := _kept(plan, text, word)) is None:
            raise
        raise output.CommandError(error.code, f"{error}; {kept}", error.exit_code) from error
    except (click.Abort, KeyboardInterrupt):
        if (kept := _kept(plan, text, word)) is not None:
            output.warn(kept)
        raise
    plan.unlink(missing_ok=True)


def _kept(plan: Path, text: str, word: str) -> str | None:
    """Return where to find what a person wrote; remove the file and return None if that is nothing."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if plan.read_text("utf-8") == text:
            plan.unlink()
            return None
    file = shlex.quote(str(plan))
    return f"what you wrote is kept: kingdom workflow modify {word} --file {file} takes it"


def _open_editor(plan: Path) -> None:
    import os
    import subprocess

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        ended = subprocess.run([*shlex.split(editor), str(plan)], check=False)  # noqa: S603 - the user's own editor
    except (OSError, ValueError) as error:
        raise output.CommandError(
            "NO_EDITOR", f"cannot start the editor {editor!r} (set VISUAL or EDITOR): {error}"
        ) from error
    if ended.returncode:
        raise output.CommandError("NO_EDITOR", f"{editor} exited with {ended.returncode}: nothing was changed")
