"""Commands that create workflows: create, fork."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kingdom.cli import output
from kingdom.cli.options import json_option, store_option, workflow_argument, workflow_home_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import with_workflows
from kingdom.cli.workflow.names import check_new_name, parse_assignments, workflow_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.resources import Git, GitRef, McpServerRef
    from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.store.transactions import WorkflowTransaction
    from kingdom.workflow.template_file import KnownNames

repository_option = click.option(
    "--repo",
    multiple=True,
    metavar="NAME[@BASE]",
    help="A repository instead of those of the template, or its folder; may be repeated.",
)
mcp_server_option = click.option(
    "--mcp", multiple=True, metavar="NAME", help="An MCP server instead of those of the template; may be repeated."
)


async def store_template(context: WorkflowContext, file: Path, *, replace: bool) -> WorkflowTemplate:
    """Store the template of a file; with ``replace``, instead of the one of that name."""
    from kingdom.workflow.templates import MAX_NAMES, load_template, read_source_ids
    from kingdom.workflow.usecases.catalog import create_workflow_template, update_workflow_template

    template = load_template(file, context.ids.new("tpl"), await read_source_ids(context.store), known_engines())
    async with context.store.reading() as tx:
        before = next((one for one in await tx.templates.list(limit=MAX_NAMES) if one.name == template.name), None)
    if before is None:
        await create_workflow_template(context, template)
    elif replace:
        template.id, template.version = before.id, before.version
        if template != before:
            await update_workflow_template(context, template)
    else:
        raise output.CommandError(
            "ALREADY_THERE", f"the template {template.name} exists ({before.id}): use --replace to replace it"
        )
    return template


def known_engines() -> KnownNames:
    """Return the engines of this machine: a template must not name another."""
    from kingdom.agents.engines import default_engines
    from kingdom.workflow.template_file import KnownNames

    return KnownNames(engines=frozenset(default_engines()))


@contextlib.contextmanager
def list_problems(*, json: bool) -> Iterator[None]:
    """Print each problem of an invalid file on a line of its own, for people; then raise a short error."""
    try:
        yield
    except output.CommandError as failure:
        problems = str(failure).splitlines()
        if json or failure.code != "INVALID_YAML" or len(problems) == 1:
            raise
        for problem in problems:
            output.say(problem)
        raise output.CommandError(failure.code, f"{len(problems)} problems: nothing was stored") from failure


@dataclass(frozen=True, slots=True)
class _NewWorkflow:
    template: str
    repositories: Sequence[str]
    mcp_servers: Sequence[str]
    rest: dict[str, Any]


@command()
@argument("template", help="The name of a template, or a .yaml file, which is stored first.")
@repository_option
@mcp_server_option
@click.option("--name", help="The name. Default: that of the template. If it is taken, -2, -3 … is added.")
@click.option("--issue", metavar="KEY", help="The issue it works on; {{ issue.key }} in queries.")
@click.option("--description", help="A short description.")
@click.option(
    "--var",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable for queries, for example issue.title=TEXT; may be repeated.",
)
@click.option("--on-failure", type=click.Choice(("pause", "fail")), help="What happens when a task fails for good.")
@workflow_home_option
@store_option
@json_option
def create(
    template: str,
    repo: tuple[str, ...],
    mcp: tuple[str, ...],
    name: str | None,
    issue: str | None,
    description: str | None,
    var: tuple[str, ...],
    on_failure: Literal["pause", "fail"] | None,
    home: Path | None,
    store: str | None,
    json: bool,
) -> None:
    """Create a workflow from a template.

    It does nothing until it is started.
    """
    if name is not None:
        check_new_name(name, (), "a workflow")
    new = _NewWorkflow(
        template,
        repo,
        mcp,
        {
            "name": name,
            "issue_key": issue,
            "description": description,
            "variables": parse_assignments(var, "--var", nested=True),
            "on_failure": on_failure,
        },
    )
    with list_problems(json=json):
        made = with_workflows(home, store, lambda context: _create(context, new))
    if json:
        from kingdom.workflow.overview import workflow_summary

        output.print_json(workflow_summary(made))
    else:
        output.say(f"{made.name} is created ({made.id}): kingdom workflow start {workflow_word(made)}")


async def _create(context: WorkflowContext, new: _NewWorkflow) -> Workflow:
    from kingdom.workflow.usecases.workflows import create_workflow

    template = await _find_or_store_template(context, new.template)
    async with context.store.reading() as tx:
        git_refs = await parse_git_refs(tx, new.repositories) if new.repositories else None
        servers = await parse_mcp_refs(tx, new.mcp_servers) if new.mcp_servers else None
    if not (template.git_refs if git_refs is None else git_refs):
        there = await _repository_names(context)
        if there:
            raise output.CommandError(
                "NO_REPOSITORY",
                f"the template {template.name} names no repository: add --repo NAME ({', '.join(there)})",
            )
    workflow_id = await create_workflow(context, template.id, git_refs=git_refs, mcp_server_refs=servers, **new.rest)
    async with context.store.reading() as tx:
        return await tx.workflows.get(workflow_id)


async def _find_or_store_template(context: WorkflowContext, word: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.names import find_template

    if word.endswith((".yaml", ".yml")):
        return await store_template(context, Path(word), replace=True)
    async with context.store.reading() as tx:
        return await find_template(tx, word)


async def _repository_names(context: WorkflowContext) -> list[str]:
    async with context.store.reading() as tx:
        return sorted(git.name for git in await tx.gits.list(limit=20))


async def parse_git_refs(tx: WorkflowTransaction, words: Sequence[str]) -> list[GitRef]:
    """Parse repositories written as ``NAME`` or ``NAME@BASE``."""
    from kingdom.cli.workflow.names import find_git
    from kingdom.workflow.domain.resources import GitRef

    refs = []
    for word in words:
        name, sign, base = word.partition("@")
        if sign and not base:
            raise output.usage_error(f"--repo {word}: write the branch after the @, or remove the @")
        try:
            git = await find_git(tx, name)
        except output.CommandError as error:
            if (found := await _registered_folder(tx, name, error)) is None:
                raise
            git = found
        refs.append(GitRef(git.id, base or None))
    return refs


async def _registered_folder(tx: WorkflowTransaction, word: str, error: output.CommandError) -> Git | None:
    """Return the repository of a folder; raise an error with the command that registers it. None: it is no folder."""
    if error.code != "NOT_FOUND" or (root := _root_of(word)) is None:
        return None
    known = next((git for git in await tx.gits.list(limit=100_000) if git.url in (root, f"file://{root}")), None)
    if known is None:
        adding = f"kingdom git add {shlex.quote(word)}"
        raise output.CommandError(error.code, f"the repository {root} is not registered here: {adding} does that first")
    return known


async def parse_mcp_refs(tx: WorkflowTransaction, words: Sequence[str]) -> list[McpServerRef]:
    from kingdom.cli.workflow.names import find_mcp_server
    from kingdom.workflow.domain.resources import McpServerRef

    return [McpServerRef((await find_mcp_server(tx, word)).id) for word in words]


def _root_of(word: str) -> str | None:
    """Return the root of the repository around a folder; None if it is no folder."""
    from kingdom.cli.workflow.checkout import read_checkout

    folder = Path(word).expanduser()
    return read_checkout(folder).root if folder.is_dir() else None


@command()
@workflow_argument
@click.option("--from", "checkpoint", required=True, metavar="CHECKPOINT", help="Its id, or the name of its work.")
@click.option("--name", help="The name. Default: that of the first workflow, with -fork.")
@workflow_home_option
@store_option
@json_option
def fork(workflow: str, checkpoint: str, name: str | None, home: Path | None, store: str | None, json: bool) -> None:
    """Create a workflow that continues from a checkpoint.

    It works on branches of its own. The first workflow is not changed.
    """
    made = with_workflows(home, store, lambda context: _fork(context, workflow, checkpoint, name))
    if json:
        from kingdom.workflow.overview import workflow_summary

        output.print_json({**workflow_summary(made), "forkedFrom": made.forked_from})
    else:
        start = f"kingdom workflow start {workflow_word(made)}"
        output.say(f"{made.name} is created ({made.id}) from {made.forked_from}: {start}")


async def _fork(context: WorkflowContext, word: str, checkpoint: str, name: str | None) -> Workflow:
    from kingdom.cli.workflow.names import find_checkpoint, find_workflow
    from kingdom.workflow.usecases.workflows import fork_workflow

    async with context.store.reading() as tx:
        first = await find_workflow(tx, word)
        point = await find_checkpoint(tx, first, checkpoint)
    workflow_id = await fork_workflow(context, point.id, name=name)
    async with context.store.reading() as tx:
        return await tx.workflows.get(workflow_id)


async def plan_text(store: WorkflowStore, word: str) -> tuple[Workflow, str]:
    """Return the workflow and its plan as YAML."""
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.domain.plan import plan_of
    from kingdom.workflow.templates import read_source_ids, write_template

    sources = await read_source_ids(store)
    async with store.reading() as tx:
        workflow = await find_workflow(tx, word)
        works = await tx.works.of_workflow(workflow.id)
    return workflow, write_template(plan_of(workflow, works), sources)
