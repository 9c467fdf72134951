"""``kingdom workflow create``: a workflow from a template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.workflow.keeping import problems_told
from kingdom.cli.workflow.options import HomeOption, StoreOption
from kingdom.cli.workflow.session import in_parts
from kingdom.cli.workflow.settings import check_new_name, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.domain.sources import GitRef, McpServerRef
    from kingdom.workflow.domain.template import WorkflowTemplate
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.ports import Transaction

Repositories = Annotated[
    list[str] | None,
    typer.Option("--repo", metavar="NAME[@BASE]", help="A repository, instead of the template's; may be repeated."),
]
McpServers = Annotated[
    list[str] | None,
    typer.Option("--mcp", metavar="NAME", help="An MCP server, instead of the template's; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class _Wish:
    template: str
    repositories: Sequence[str] | None
    mcp_servers: Sequence[str] | None
    rest: dict[str, Any]


def create(
    template: Annotated[
        str, typer.Argument(metavar="TEMPLATE", help="The name of a template, or its .yaml file: that is kept first.")
    ],
    repo: Repositories = None,
    mcp: McpServers = None,
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
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Make a workflow from a template. It does nothing until it is started."""
    if name is not None:
        check_new_name(name, (), "a workflow")
    wish = _Wish(
        template,
        repo,
        mcp,
        {
            "name": name,
            "issue_key": issue,
            "description": description,
            "variables": settings(var or [], "--var", nested=True),
            "on_failure": on_failure,
        },
    )
    with problems_told(json=json):
        made = in_parts(home, store, lambda parts: _create(parts, wish))
    if json:
        from kingdom.workflow.overview import summary

        output.emit(summary(made))
    else:
        output.say(f"{made.id} is made: kingdom workflow start {made.id}")


async def _create(parts: Parts, wish: _Wish) -> Workflow:
    from kingdom.workflow.usecases.create_workflow import CreateWorkflow

    template = await _template(parts, wish.template)
    async with parts.store.reading() as tx:
        git_refs = None if wish.repositories is None else await git_refs_of(tx, wish.repositories)
        servers = None if wish.mcp_servers is None else await mcp_refs_of(tx, wish.mcp_servers)
    if not (template.git_refs if git_refs is None else git_refs):
        there = await _repositories(parts)
        if there:
            raise output.Failure(
                "NO_REPOSITORY",
                f"the template {template.name} names no repository: give --repo NAME ({', '.join(there)})",
            )
    workflow_id = await CreateWorkflow(parts).execute(
        template.id, git_refs=git_refs, mcp_server_refs=servers, **wish.rest
    )
    async with parts.store.reading() as tx:
        return await tx.workflows.get(workflow_id)


async def _template(parts: Parts, word: str) -> WorkflowTemplate:
    from kingdom.cli.workflow.finding import find_template
    from kingdom.cli.workflow.keeping import keep

    if word.endswith((".yaml", ".yml")):
        return await keep(parts, Path(word), replace=True)
    async with parts.store.reading() as tx:
        return await find_template(tx, word)


async def _repositories(parts: Parts) -> list[str]:
    async with parts.store.reading() as tx:
        return sorted(git.name for git in await tx.gits.list(limit=20))


async def git_refs_of(tx: Transaction, words: Sequence[str]) -> list[GitRef]:
    """Repositories as they are written on the command line: ``NAME`` or ``NAME@BASE``."""
    from kingdom.cli.workflow.finding import find_git
    from kingdom.workflow.domain.sources import GitRef

    refs = []
    for word in words:
        name, sign, base = word.partition("@")
        if sign and not base:
            raise output.misuse(f"--repo {word}: name the branch after the @, or leave the @ out")
        refs.append(GitRef((await find_git(tx, name)).id, base or None))
    return refs


async def mcp_refs_of(tx: Transaction, words: Sequence[str]) -> list[McpServerRef]:
    """MCP servers by name."""
    from kingdom.cli.workflow.finding import find_mcp_server
    from kingdom.workflow.domain.sources import McpServerRef

    return [McpServerRef((await find_mcp_server(tx, word)).id) for word in words]
