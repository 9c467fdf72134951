"""``kingdom template …``: the plans workflows are made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.options import JsonOption, StoreOption, WorkflowArgument, WorkflowHomeOption, YesOption
from kingdom.cli.session import errors_reported, find_workflow_home, with_parts, with_store
from kingdom.cli.workflow.plans import known_engines, list_problems, store_template

if TYPE_CHECKING:
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.workflow import WorkflowTemplate
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.templates import SourceIds

app = typer.Typer()
_MAX_ITEMS = 100_000

TemplateArgument = Annotated[str, typer.Argument(metavar="TEMPLATE", help="Its name or id.")]
TemplateFilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE…", help="YAML files.")]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Look after the templates: the plans workflows are made from."""
    output.show_help_if_no_command(context)


def add(
    files: TemplateFilesArgument,
    replace: Annotated[bool, typer.Option("--replace", help="Put it in the place of the one of that name.")] = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Check templates and keep them. Workflows that were made from one before stay as they are."""
    with list_problems(json=json):
        kept = with_parts(home, store, lambda parts: _add(parts, files, replace=replace))
    if json:
        output.print_json({"templates": [_summary(template) for template in kept]})
    else:
        for template in kept:
            output.say(f"{template.name} is kept as {template.id}: kingdom workflow create {template.name}")


def check(
    files: TemplateFilesArgument,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Look for everything that is wrong with templates. Exits 1 when something is.

    Names of repositories and MCP servers are compared with those that are registered, where there are workflows.
    """
    problems = [problem for file in files for problem in _problems(file, home, store)]
    if json:
        output.print_json({"checked": [str(file) for file in files], "problems": problems})
    else:
        for problem in problems:
            output.say(problem)
        if not problems:
            output.say(f"{', '.join(file.name for file in files)}: nothing is wrong")
    if problems:
        raise typer.Exit(output.FAILED)


def ls(home: WorkflowHomeOption = None, store: StoreOption = None, json: JsonOption = False) -> None:
    """List the templates."""
    found = with_store(home, store, _all)
    if json:
        output.print_json({"templates": [_summary(template) for template in found]})
    elif found:
        rows = [
            (one.name, len(one.works), sum(len(work.tasks) for work in one.works), one.id, one.description)
            for one in found
        ]
        output.print_table(("template", "works", "tasks", "id", "description"), rows, right=("works", "tasks"))
    else:
        output.say("no templates: kingdom template add FILE keeps one")


def show(
    template: TemplateArgument, home: WorkflowHomeOption = None, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Show a template as its YAML file."""
    from kingdom.workflow.templates import write_template

    found, sources = with_store(home, store, lambda opened: _read(opened, template))
    text = write_template(found, sources)
    if json:
        output.print_json({**_summary(found), "yaml": text})
    else:
        output.say(text.rstrip("\n"))


def save(
    workflow: WorkflowArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the template.")],
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make a template of a workflow as its plan is now."""
    kept = with_parts(home, store, lambda parts: _save(parts, workflow, name))
    if json:
        output.print_json({"templates": [_summary(kept)]})
    else:
        output.say(f"{kept.name} is kept as {kept.id}: kingdom template show {kept.name}")


def rm(
    template: TemplateArgument,
    yes: YesOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a template. Workflows that were made from it stay."""
    output.confirm(f"Delete the template {template}?", yes=yes)
    removed = with_parts(home, store, lambda parts: _remove(parts, template))
    if json:
        output.print_json({"deleted": _summary(removed)})
    else:
        output.say(f"{removed.name} is deleted")


async def _add(parts: WorkflowContext, files: list[Path], *, replace: bool) -> list[WorkflowTemplate]:
    return [await store_template(parts, file, replace=replace) for file in files]


def _problems(file: Path, home: Path | None, store: str | None) -> list[str]:
    from dataclasses import replace

    from kingdom.base.yamlfile import YamlProblem
    from kingdom.workflow.templates import read_source_ids, read_template_file

    known = known_engines()
    try:
        place = find_workflow_home(home, store)
    except output.CommandError:
        place = None
    if place is not None and (store is not None or place.database.exists()):
        sources = with_store(home, store, read_source_ids)
        known = replace(known, repositories=sources.repositories, mcp_servers=sources.mcp_servers)
    try:
        with errors_reported():
            read_template_file(file, known)
    except output.CommandError as failure:
        if isinstance(failure.__cause__, YamlProblem):
            return list(failure.__cause__.problems)
        raise
    return []


async def _all(store: WorkflowStore) -> list[WorkflowTemplate]:
    async with store.reading() as tx:
        return sorted(await tx.templates.list(limit=_MAX_ITEMS), key=lambda template: template.name)


async def _read(store: WorkflowStore, word: str) -> tuple[WorkflowTemplate, SourceIds]:
    from kingdom.cli.workflow.names import find_template
    from kingdom.workflow.templates import read_source_ids

    sources = await read_source_ids(store)
    async with store.reading() as tx:
        return await find_template(tx, word), sources


async def _save(parts: WorkflowContext, word: str, name: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.usecases.catalog import CreateTemplateFromWorkflow

    async with parts.store.reading() as tx:
        workflow = await find_workflow(tx, word)
    template_id = await CreateTemplateFromWorkflow(parts).execute(workflow.id, name)
    async with parts.store.reading() as tx:
        return await tx.templates.get(template_id)


async def _remove(parts: WorkflowContext, word: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.names import find_template
    from kingdom.workflow.usecases.catalog import DeleteWorkflowTemplate

    async with parts.store.reading() as tx:
        template = await find_template(tx, word)
    await DeleteWorkflowTemplate(parts).execute(template.id)
    return template


def _summary(template: WorkflowTemplate) -> dict[str, Any]:
    return {
        "id": template.id,
        "name": template.name,
        "description": template.description,
        "works": [work.name for work in template.works],
        "tasks": sum(len(work.tasks) for work in template.works),
    }


for _command in (add, check, ls, show, save, rm):
    app.command()(_command)
