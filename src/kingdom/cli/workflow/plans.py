"""Commands that make workflows and change their plans: create, fork, modify."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kingdom.cli import output
from kingdom.cli.options import JsonOption, StoreOption, WorkflowArgument, WorkflowHomeOption, YesOption
from kingdom.cli.session import with_parts, with_store
from kingdom.cli.workflow.names import check_new_name, parse_assignments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.resources import GitRef, McpServerRef
    from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
    from kingdom.workflow.ports import WorkflowStore, WorkflowTransaction
    from kingdom.workflow.template_file import KnownNames
    from kingdom.workflow.templates import DescribedChange


# Templates from files into the store.


async def store_template(parts: WorkflowContext, file: Path, *, replace: bool) -> WorkflowTemplate:
    """Keep the template of a file; with ``replace`` in the place of the one of that name."""
    from kingdom.workflow.templates import MAX_NAMES, load_template, read_source_ids
    from kingdom.workflow.usecases.catalog import CreateWorkflowTemplate, UpdateWorkflowTemplate

    template = load_template(file, parts.ids.new("tpl"), await read_source_ids(parts.store), known_engines())
    async with parts.store.reading() as tx:
        before = next((one for one in await tx.templates.list(limit=MAX_NAMES) if one.name == template.name), None)
    if before is None:
        await CreateWorkflowTemplate(parts).execute(template)
    elif replace:
        template.id, template.version = before.id, before.version
        if template != before:
            await UpdateWorkflowTemplate(parts).execute(template)
    else:
        raise output.CommandError(
            "ALREADY_THERE", f"there is a template {template.name} ({before.id}): --replace puts this one in its place"
        )
    return template


def known_engines() -> KnownNames:
    """The engines of this machine: a template that names another is wrong."""
    from kingdom.agents.engines import default_engines
    from kingdom.workflow.template_file import KnownNames

    return KnownNames(engines=frozenset(default_engines()))


@contextlib.contextmanager
def list_problems(*, json: bool) -> Iterator[None]:
    """Every problem of a file on a line of its own, for people; then a last word."""
    try:
        yield
    except output.CommandError as failure:
        problems = str(failure).splitlines()
        if json or failure.code != "INVALID_YAML" or len(problems) == 1:
            raise
        for problem in problems:
            output.say(problem)
        raise output.CommandError(failure.code, f"{len(problems)} problems: nothing was kept") from failure


# ``kingdom workflow create``: a workflow from a template.


RepositoryOption = Annotated[
    list[str] | None,
    typer.Option("--repo", metavar="NAME[@BASE]", help="A repository, instead of the template's; may be repeated."),
]
McpServerOption = Annotated[
    list[str] | None,
    typer.Option("--mcp", metavar="NAME", help="An MCP server, instead of the template's; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class _NewWorkflow:
    template: str
    repositories: Sequence[str] | None
    mcp_servers: Sequence[str] | None
    rest: dict[str, Any]


def create(
    template: Annotated[
        str, typer.Argument(metavar="TEMPLATE", help="The name of a template, or its .yaml file: that is kept first.")
    ],
    repo: RepositoryOption = None,
    mcp: McpServerOption = None,
    name: Annotated[str | None, typer.Option(help="What to call it; else as the template.", show_default=False)] = None,
    issue: Annotated[
        str | None, typer.Option(metavar="KEY", help="What it is about: {{ issue.key }}.", show_default=False)
    ] = None,
    description: Annotated[str | None, typer.Option(help="A few words.", show_default=False)] = None,
    var: Annotated[
        list[str] | None,
        typer.Option("--var", metavar="NAME=VALUE", help="A variable of the queries: issue.title=…; may be repeated."),
    ] = None,
    on_failure: Annotated[
        Literal["pause", "fail"] | None,
        typer.Option(help="What becomes of it when a task failed for good.", show_default=False),
    ] = None,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make a workflow from a template. It does nothing until it is started."""
    if name is not None:
        check_new_name(name, (), "a workflow")
    wish = _NewWorkflow(
        template,
        repo,
        mcp,
        {
            "name": name,
            "issue_key": issue,
            "description": description,
            "variables": parse_assignments(var or [], "--var", nested=True),
            "on_failure": on_failure,
        },
    )
    with list_problems(json=json):
        made = with_parts(home, store, lambda parts: _create(parts, wish))
    if json:
        from kingdom.workflow.overview import workflow_summary

        output.print_json(workflow_summary(made))
    else:
        output.say(f"{made.id} is made: kingdom workflow start {made.id}")


async def _create(parts: WorkflowContext, wish: _NewWorkflow) -> Workflow:
    from kingdom.workflow.usecases.workflows import CreateWorkflow

    template = await _find_or_store_template(parts, wish.template)
    async with parts.store.reading() as tx:
        git_refs = None if wish.repositories is None else await parse_git_refs(tx, wish.repositories)
        servers = None if wish.mcp_servers is None else await parse_mcp_refs(tx, wish.mcp_servers)
    if not (template.git_refs if git_refs is None else git_refs):
        there = await _repository_names(parts)
        if there:
            raise output.CommandError(
                "NO_REPOSITORY",
                f"the template {template.name} names no repository: give --repo NAME ({', '.join(there)})",
            )
    workflow_id = await CreateWorkflow(parts).execute(
        template.id, git_refs=git_refs, mcp_server_refs=servers, **wish.rest
    )
    async with parts.store.reading() as tx:
        return await tx.workflows.get(workflow_id)


async def _find_or_store_template(parts: WorkflowContext, word: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.names import find_template

    if word.endswith((".yaml", ".yml")):
        return await store_template(parts, Path(word), replace=True)
    async with parts.store.reading() as tx:
        return await find_template(tx, word)


async def _repository_names(parts: WorkflowContext) -> list[str]:
    async with parts.store.reading() as tx:
        return sorted(git.name for git in await tx.gits.list(limit=20))


async def parse_git_refs(tx: WorkflowTransaction, words: Sequence[str]) -> list[GitRef]:
    """Repositories as they are written on the command line: ``NAME`` or ``NAME@BASE``."""
    from kingdom.cli.workflow.names import find_git
    from kingdom.workflow.domain.resources import GitRef

    refs = []
    for word in words:
        name, sign, base = word.partition("@")
        if sign and not base:
            raise output.usage_error(f"--repo {word}: name the branch after the @, or leave the @ out")
        refs.append(GitRef((await find_git(tx, name)).id, base or None))
    return refs


async def parse_mcp_refs(tx: WorkflowTransaction, words: Sequence[str]) -> list[McpServerRef]:
    """MCP servers by name."""
    from kingdom.cli.workflow.names import find_mcp_server
    from kingdom.workflow.domain.resources import McpServerRef

    return [McpServerRef((await find_mcp_server(tx, word)).id) for word in words]


# ``kingdom workflow fork``: a second workflow from a checkpoint of the first.


def fork(
    workflow: WorkflowArgument,
    checkpoint: Annotated[str, typer.Option("--from", metavar="CHECKPOINT", help="Its id, or the name of its work.")],
    name: Annotated[str | None, typer.Option(help="What to call it; else as the first.", show_default=False)] = None,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make a second workflow that goes on from a checkpoint, on branches of its own. The first stays as it is."""
    made = with_parts(home, store, lambda parts: _fork(parts, workflow, checkpoint, name))
    if json:
        from kingdom.workflow.overview import workflow_summary

        output.print_json({**workflow_summary(made), "forkedFrom": made.forked_from})
    else:
        output.say(f"{made.id} is made, from {made.forked_from}: kingdom workflow start {made.id}")


async def _fork(parts: WorkflowContext, word: str, checkpoint: str, name: str | None) -> Workflow:
    from kingdom.cli.workflow.names import find_checkpoint, find_workflow
    from kingdom.workflow.usecases.workflows import ForkWorkflow

    async with parts.store.reading() as tx:
        first = await find_workflow(tx, word)
        point = await find_checkpoint(tx, first, checkpoint)
    workflow_id = await ForkWorkflow(parts).execute(point.id, name=name)
    async with parts.store.reading() as tx:
        return await tx.workflows.get(workflow_id)


# ``kingdom workflow modify``: the plan of a workflow, edited as a whole.


def modify(
    workflow: WorkflowArgument,
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
    yes: YesOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Change what is not done yet of a workflow: works, tasks, their order, repositories, MCP servers.

    Works and tasks are known by their names. It must not be running: pause it first.
    """
    found, before = with_store(home, store, lambda opened: plan_text(opened, workflow))
    plan = _edit(before) if file is None else file  # one with mistakes stays, to be mended and given with --file
    text = _read_plan(plan)
    with list_problems(json=json):
        changes = with_store(home, store, lambda opened: _plan_changes(opened, found.id, text, str(plan)))
    words = [told for told, _ in changes]
    if not json:
        for line in words or ["nothing changes"]:
            output.say(line)
    if changes and not dry_run:
        if file is None:
            output.confirm(f"Change {found.name} so?", yes=yes)
        with_parts(home, store, lambda parts: _apply(parts, found.id, changes))
    if file is None:
        plan.unlink(missing_ok=True)
    if json:
        output.print_json({"id": found.id, "changes": words, "made": bool(changes) and not dry_run})
    elif changes and not dry_run:
        output.say(f"the plan of {found.name} is changed")


async def plan_text(store: WorkflowStore, word: str) -> tuple[Workflow, str]:
    """The workflow that is meant, and its plan as a file."""
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.templates import plan_of, read_source_ids, write_template

    sources = await read_source_ids(store)
    async with store.reading() as tx:
        workflow = await find_workflow(tx, word)
        works = await tx.works.of_workflow(workflow.id)
    return workflow, write_template(plan_of(workflow, works), sources)


async def _plan_changes(store: WorkflowStore, workflow_id: str, text: str, name: str) -> list[DescribedChange]:
    from kingdom.workflow.templates import parse_template, plan_changes, read_source_ids

    wanted = parse_template(text, name, workflow_id, await read_source_ids(store), known_engines())
    async with store.reading() as tx:
        workflow = await tx.workflows.get(workflow_id)
        workflow.check_modifiable()
        return plan_changes(workflow, await tx.works.of_workflow(workflow_id), wanted)


async def _apply(parts: WorkflowContext, workflow_id: str, changes: list[DescribedChange]) -> None:
    from kingdom.workflow.usecases.workflows import ModifyWorkflow

    await ModifyWorkflow(parts).execute(workflow_id, [change for _, change in changes])


def _read_plan(file: Path) -> str:
    from kingdom.base.yamlfile import read_text
    from kingdom.cli.session import errors_reported

    with errors_reported():
        return read_text(file)


def _edit(text: str) -> Path:
    """A file with the plan as a person left it in the editor."""
    import os
    import shlex
    import subprocess
    import sys
    import tempfile

    if not sys.stdin.isatty():
        raise output.CommandError(
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
        raise output.CommandError(
            "NO_EDITOR", f"the editor {editor!r} does not start (VISUAL, EDITOR): {error}"
        ) from error
    if ended.returncode:
        raise output.CommandError("NO_EDITOR", f"{editor} ended with {ended.returncode}: nothing is changed ({name})")
    return Path(name)
