"""``kingdom template``: the plans that workflows are created from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import PATH, json_option, store_option, workflow_argument, workflow_home_option, yes_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import errors_reported, find_workflow_home, with_store, with_workflows
from kingdom.cli.workflow.plans import known_engines, list_problems, store_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.workflow import WorkflowTemplate
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.template_file import KnownNames
    from kingdom.workflow.templates import SourceIds

_MAX_ITEMS = 100_000

template_argument = argument("template", help="Its name or id.")
template_files_argument = argument("files", nargs=-1, type=PATH, required=True, metavar="FILE...", help="YAML files.")


@group("template")
def app() -> None:
    """Manage templates: plans that workflows are created from."""


@command()
@template_files_argument
@click.option("--replace", is_flag=True, help="Replace the template of that name.")
@workflow_home_option
@store_option
@json_option
def add(files: tuple[Path, ...], replace: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Check templates and store them.

    Existing workflows are not changed.
    """
    with list_problems(json=json):
        stored = with_workflows(home, store, lambda context: _add(context, files, replace=replace))
    if json:
        output.print_json({"templates": [_summary(template) for template in stored]})
    else:
        for template in stored:
            output.say(f"{template.name} is stored as {template.id}: kingdom workflow create {template.name}")


@command()
@template_files_argument
@workflow_home_option
@store_option
@json_option
def check(files: tuple[Path, ...], home: Path | None, store: str | None, json: bool) -> None:
    """Check templates for problems.

    Repositories and MCP servers must be registered, if there is a workflow store. Exits 1 when there are problems.
    """
    known = _known_names(home, store)
    problems = [problem for file in files for problem in _problems(file, known)]
    if json:
        output.print_json({"checked": [str(file) for file in files], "problems": problems})
    else:
        for problem in problems:
            output.say(problem)
        if not problems:
            output.say(f"{', '.join(file.name for file in files)}: no problems")
    if problems:
        raise click.exceptions.Exit(output.FAILED)


@command()
@workflow_home_option
@store_option
@json_option
def ls(home: Path | None, store: str | None, json: bool) -> None:
    """List templates."""
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
        output.say("no templates: kingdom template new NAME writes one, kingdom template add FILE stores it")


@command()
@template_argument
@workflow_home_option
@store_option
@json_option
def show(template: str, home: Path | None, store: str | None, json: bool) -> None:
    """Show a template as YAML."""
    from kingdom.workflow.templates import write_template

    found, sources = with_store(home, store, lambda opened: _read(opened, template))
    text = write_template(found, sources)
    if json:
        output.print_json({**_summary(found), "yaml": text})
    else:
        output.say(text.rstrip("\n"))


@command()
@workflow_argument
@argument("name", help="The name of the template.")
@workflow_home_option
@store_option
@json_option
def save(workflow: str, name: str, home: Path | None, store: str | None, json: bool) -> None:
    """Create a template from the current plan of a workflow."""
    stored = with_workflows(home, store, lambda context: _save(context, workflow, name))
    if json:
        output.print_json({"templates": [_summary(stored)]})
    else:
        output.say(f"{stored.name} is stored as {stored.id}: kingdom template show {stored.name}")


@command()
@template_argument
@yes_option
@workflow_home_option
@store_option
@json_option
def rm(template: str, yes: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Delete a template.

    Workflows created from it stay.
    """
    output.confirm(f"Delete the template {template}?", yes=yes)
    removed = with_workflows(home, store, lambda context: _remove(context, template))
    if json:
        output.print_json({"deleted": _summary(removed)})
    else:
        output.say(f"{removed.name} is deleted")


@command()
@argument("name", help="The name of the template.")
@click.option("--file", "-f", type=PATH, metavar="FILE", help="The file to write. Default: NAME.yaml.")
@json_option
def new(name: str, file: Path | None, json: bool) -> None:
    """Write a commented plan to start from.

    An existing file is not overwritten.
    """
    from kingdom.cli.workflow.names import check_new_name
    from kingdom.cli.workflow.new_template import NAME_MARK, TEXT
    from kingdom.workflow.templates import dump_yaml

    check_new_name(name, (), "a template")
    path = file or Path(f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(TEXT.replace(NAME_MARK, dump_yaml({"name": name}).partition(": ")[2].strip()))
    except FileExistsError:
        raise output.CommandError("ALREADY_THERE", f"{path} exists: choose another --file, or delete it") from None
    if json:
        output.print_json({"name": name, "file": str(path)})
    else:
        create = f"kingdom workflow create {shlex.quote(str(path))} --repo NAME --description TEXT"
        output.say(f"{path} is written: edit it, then {create}")


async def _add(context: WorkflowContext, files: Sequence[Path], *, replace: bool) -> list[WorkflowTemplate]:
    return [await store_template(context, file, replace=replace) for file in files]


def _known_names(home: Path | None, store: str | None) -> KnownNames:
    """Return the names that templates may use. Without a workflow store, those of sources are not checked."""
    from dataclasses import replace

    from kingdom.workflow.templates import read_source_ids

    known = known_engines()
    try:
        place = find_workflow_home(home, store)
    except output.CommandError:
        return known
    if not place.has_store:
        return known
    sources = with_store(home, store, read_source_ids)
    return replace(known, repositories=sources.repositories, mcp_servers=sources.mcp_servers)


def _problems(file: Path, known: KnownNames) -> list[str]:
    from kingdom.base.yamlfile import YamlProblem
    from kingdom.workflow.templates import read_template_file

    try:
        with errors_reported():
            read_template_file(file, known)
    except output.CommandError as error:
        if isinstance(error.__cause__, YamlProblem):
            return list(error.__cause__.problems)
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


async def _save(context: WorkflowContext, word: str, name: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.usecases.catalog import create_template_from_workflow

    async with context.store.reading() as tx:
        workflow = await find_workflow(tx, word)
    template_id = await create_template_from_workflow(context, workflow.id, name)
    async with context.store.reading() as tx:
        return await tx.templates.get(template_id)


async def _remove(context: WorkflowContext, word: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.names import find_template
    from kingdom.workflow.usecases.catalog import delete_workflow_template

    async with context.store.reading() as tx:
        template = await find_template(tx, word)
    await delete_workflow_template(context, template.id)
    return template


def _summary(template: WorkflowTemplate) -> dict[str, Any]:
    return {
        "id": template.id,
        "name": template.name,
        "description": template.description,
        "works": [work.name for work in template.works],
        "tasks": sum(len(work.tasks) for work in template.works),
    }


for _command in (new, add, check, ls, show, save, rm):
    app.add_command(_command)
