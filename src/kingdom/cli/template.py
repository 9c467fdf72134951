"""``kingdom template …``: the plans workflows are made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Yes
from kingdom.cli.workflow.keeping import keep, known_engines, problems_told
from kingdom.cli.workflow.options import HomeOption, StoreOption, WorkflowWord
from kingdom.cli.workflow.place import find_place
from kingdom.cli.workflow.session import errors_told, in_parts, in_store

if TYPE_CHECKING:
    from kingdom.workflow.domain.template import WorkflowTemplate
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.ports import Store
    from kingdom.workflow.templates import Sources

app = typer.Typer()
_MOST = 100_000

TemplateWord = Annotated[str, typer.Argument(metavar="TEMPLATE", help="Its name or id.")]
TemplateFiles = Annotated[list[Path], typer.Argument(metavar="FILE…", help="YAML files.")]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Look after the templates: the plans workflows are made from."""
    output.help_when_alone(context)


def add(
    files: TemplateFiles,
    replace: Annotated[bool, typer.Option("--replace", help="Put it in the place of the one of that name.")] = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Check templates and keep them. Workflows that were made from one before stay as they are."""
    with problems_told(json=json):
        kept = in_parts(home, store, lambda parts: _add(parts, files, replace=replace))
    if json:
        output.emit({"templates": [_summary(template) for template in kept]})
    else:
        for template in kept:
            output.say(f"{template.name} is kept as {template.id}: kingdom workflow create {template.name}")


def check(
    files: TemplateFiles,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Look for everything that is wrong with templates. Exits 1 when something is.

    Names of repositories and MCP servers are compared with those that are registered, where there are workflows.
    """
    problems = [problem for file in files for problem in _problems(file, home, store)]
    if json:
        output.emit({"checked": [str(file) for file in files], "problems": problems})
    else:
        for problem in problems:
            output.say(problem)
        if not problems:
            output.say(f"{', '.join(file.name for file in files)}: nothing is wrong")
    if problems:
        raise typer.Exit(output.FAILED)


def ls(home: HomeOption = None, store: StoreOption = None, json: Json = False) -> None:
    """List the templates."""
    found = in_store(home, store, _all)
    if json:
        output.emit({"templates": [_summary(template) for template in found]})
    elif found:
        rows = [
            (one.name, len(one.works), sum(len(work.tasks) for work in one.works), one.id, one.description)
            for one in found
        ]
        output.print_table(("template", "works", "tasks", "id", "description"), rows, right=("works", "tasks"))
    else:
        output.say("no templates: kingdom template add FILE keeps one")


def show(template: TemplateWord, home: HomeOption = None, store: StoreOption = None, json: Json = False) -> None:
    """Show a template as its YAML file."""
    from kingdom.workflow.templates import write_template

    found, sources = in_store(home, store, lambda opened: _read(opened, template))
    text = write_template(found, sources)
    if json:
        output.emit({**_summary(found), "yaml": text})
    else:
        output.say(text.rstrip("\n"))


def save(
    workflow: WorkflowWord,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the template.")],
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Make a template of a workflow as its plan is now."""
    kept = in_parts(home, store, lambda parts: _save(parts, workflow, name))
    if json:
        output.emit({"templates": [_summary(kept)]})
    else:
        output.say(f"{kept.name} is kept as {kept.id}: kingdom template show {kept.name}")


def rm(
    template: TemplateWord, yes: Yes = False, home: HomeOption = None, store: StoreOption = None, json: Json = False
) -> None:
    """Delete a template. Workflows that were made from it stay."""
    output.confirm(f"Delete the template {template}?", yes=yes)
    removed = in_parts(home, store, lambda parts: _remove(parts, template))
    if json:
        output.emit({"deleted": _summary(removed)})
    else:
        output.say(f"{removed.name} is deleted")


async def _add(parts: Parts, files: list[Path], *, replace: bool) -> list[WorkflowTemplate]:
    return [await keep(parts, file, replace=replace) for file in files]


def _problems(file: Path, home: Path | None, store: str | None) -> list[str]:
    from dataclasses import replace

    from kingdom.workflow.sources import read_sources
    from kingdom.workflow.templates import read_file
    from kingdom.yamlfile import YamlProblem

    known = known_engines()
    try:
        place = find_place(home, store)
    except output.Failure:
        place = None
    if place is not None and (store is not None or place.database.exists()):
        sources = in_store(home, store, read_sources)
        known = replace(known, repositories=sources.repositories, mcp_servers=sources.mcp_servers)
    try:
        with errors_told():
            read_file(file, known)
    except output.Failure as failure:
        if isinstance(failure.__cause__, YamlProblem):
            return list(failure.__cause__.problems)
        raise
    return []


async def _all(store: Store) -> list[WorkflowTemplate]:
    async with store.reading() as tx:
        return sorted(await tx.templates.list(limit=_MOST), key=lambda template: template.name)


async def _read(store: Store, word: str) -> tuple[WorkflowTemplate, Sources]:
    from kingdom.cli.workflow.finding import find_template
    from kingdom.workflow.sources import read_sources

    sources = await read_sources(store)
    async with store.reading() as tx:
        return await find_template(tx, word), sources


async def _save(parts: Parts, word: str, name: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.finding import find_workflow
    from kingdom.workflow.usecases.create_template_from_workflow import CreateTemplateFromWorkflow

    async with parts.store.reading() as tx:
        workflow = await find_workflow(tx, word)
    template_id = await CreateTemplateFromWorkflow(parts).execute(workflow.id, name)
    async with parts.store.reading() as tx:
        return await tx.templates.get(template_id)


async def _remove(parts: Parts, word: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.finding import find_template
    from kingdom.workflow.usecases.delete_workflow_template import DeleteWorkflowTemplate

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
