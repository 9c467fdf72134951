"""``kingdom git`` and ``kingdom mcp``: the repositories and MCP servers that workflows use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.options import JsonOption, StoreOption, WorkflowHomeOption, YesOption
from kingdom.cli.session import with_parts, with_store
from kingdom.cli.web import mcp_serve
from kingdom.cli.workflow.names import check_new_name, parse_assignments

if TYPE_CHECKING:
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.resources import Git, McpServer
    from kingdom.workflow.ports import WorkflowStore


# ``kingdom git …``: the repositories workflows work on.


git_app = typer.Typer()
_MAX_ITEMS = 100_000


@git_app.callback(invoke_without_command=True)
def _git_group(context: typer.Context) -> None:
    """Look after the repositories that workflows work on."""
    output.show_help_if_no_command(context)


def git_add(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="https://…, ssh://…, user@host:path, or a folder of this machine.")
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What to call it; without it, the last part of the URL.", show_default=False),
    ] = None,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Register a repository. It is cloned when the first workflow needs it."""
    full = str(Path(url).absolute()) if Path(url).is_dir() else url
    called = name or re.split(r"[/:]", full.rstrip("/"))[-1].removesuffix(".git")
    made = with_parts(home, store, lambda parts: _add_git(parts, called, full))
    if json:
        output.print_json(_git_document(made))
    else:
        output.say(f"{made.name} is registered as {made.id}")


def git_ls(home: WorkflowHomeOption = None, store: StoreOption = None, json: JsonOption = False) -> None:
    """List the repositories."""
    found = with_store(home, store, _all_gits)
    if json:
        output.print_json({"repositories": [_git_document(git) for git in found]})
    elif found:
        rows = [(git.name, git.url, git.id, len(git.used_by)) for git in found]
        output.print_table(("repository", "url", "id", "workflows"), rows, right=("workflows",))
    else:
        output.say("no repositories: kingdom git add URL registers one")


def git_rm(
    repository: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    yes: YesOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a repository that no workflow uses. Templates forget it; its clone goes, unless it holds their work."""
    output.confirm(f"Delete {repository}? Templates that name it will forget it.", yes=yes)
    removed = with_parts(home, store, lambda parts: _remove_git(parts, repository))
    if json:
        output.print_json({"deleted": _git_document(removed)})
    else:
        output.say(f"{removed.name} is deleted")


async def _add_git(parts: WorkflowContext, name: str, url: str) -> Git:
    from kingdom.gitops.names import check_url
    from kingdom.workflow.usecases.catalog import CreateGit

    check_url(url, allow_local=True)
    check_new_name(name, [git.name for git in await _all_gits(parts.store)], "a repository")
    git_id = await CreateGit(parts).execute(name, url)
    async with parts.store.reading() as tx:
        return await tx.gits.get(git_id)


async def _all_gits(store: WorkflowStore) -> list[Git]:
    async with store.reading() as tx:
        return sorted(await tx.gits.list(limit=_MAX_ITEMS), key=lambda git: git.name)


async def _remove_git(parts: WorkflowContext, word: str) -> Git:
    from kingdom.cli.workflow.names import find_git
    from kingdom.workflow.usecases.catalog import DeleteGit

    async with parts.store.reading() as tx:
        git = await find_git(tx, word)
    await DeleteGit(parts).execute(git.id)
    return git


def _git_document(git: Git) -> dict[str, Any]:
    return {"id": git.id, "name": git.name, "url": git.url, "usedBy": sorted(git.used_by)}


for _command in (git_add, git_ls, git_rm):
    git_app.command()(_command)


# ``kingdom mcp …``: the MCP servers that agents of workflows can be given, and the court as one.


mcp_app = typer.Typer()


@mcp_app.callback(invoke_without_command=True)
def _mcp_group(context: typer.Context) -> None:
    """Look after the MCP servers of workflows' agents; be one yourself (serve)."""
    output.show_help_if_no_command(context)


def mcp_add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What templates call it.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND …]", help="The program to run, with its arguments.", show_default=False),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Where it listens, instead of a command.", show_default=False),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME=VALUE",
            help="A variable for the program, or a header for a URL; ${NAME} is looked up when an agent starts.",
        ),
    ] = None,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Register an MCP server: a program (`kingdom mcp add NAME -- COMMAND …`) or a URL (`--url`)."""
    if bool(command) == bool(url):
        raise output.usage_error("give a command after -- or a --url, one of them")
    variables = {key: str(value) for key, value in parse_assignments(env or [], "--env", nested=False).items()}
    _refuse_secrets(variables)
    made = with_parts(home, store, lambda parts: _add_server(parts, name, command or [], url, variables))
    if json:
        output.print_json(_server_document(made))
    else:
        output.say(f"{made.name} is registered as {made.id}")


def mcp_ls(home: WorkflowHomeOption = None, store: StoreOption = None, json: JsonOption = False) -> None:
    """List the MCP servers. Values of variables are not shown."""
    found = with_store(home, store, _all_servers)
    if json:
        output.print_json({"mcpServers": [_server_document(server) for server in found]})
    elif found:
        rows = [
            (one.name, one.url or " ".join(one.command), ", ".join(sorted(one.env)), one.id, len(one.used_by))
            for one in found
        ]
        output.print_table(("server", "command or url", "variables", "id", "workflows"), rows, right=("workflows",))
    else:
        output.say("no MCP servers: kingdom mcp add NAME -- COMMAND registers one")


def mcp_rm(
    server: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    yes: YesOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Unregister an MCP server that no workflow uses. Templates forget it."""
    output.confirm(f"Unregister {server}? Templates that name it will forget it.", yes=yes)
    removed = with_parts(home, store, lambda parts: _remove_server(parts, server))
    if json:
        output.print_json({"unregistered": _server_document(removed)})
    else:
        output.say(f"{removed.name} is unregistered")


def _refuse_secrets(variables: dict[str, str]) -> None:
    """The store is no place for a secret: a reference to one is."""
    from kingdom.base.yamlfile import looks_secret

    for name, value in variables.items():
        if looks_secret(value):
            raise output.usage_error(
                f"--env {name}: this looks like a secret; put it in the environment of the engine and refer to it: "
                f"--env '{name}=${{{name}}}'"
            )


async def _add_server(
    parts: WorkflowContext, name: str, command: list[str], url: str | None, env: dict[str, str]
) -> McpServer:
    from kingdom.workflow.usecases.catalog import RegisterMcpServer

    check_new_name(name, [server.name for server in await _all_servers(parts.store)], "an MCP server")
    server_id = await RegisterMcpServer(parts).execute(name, command=command, url=url, env=env)
    async with parts.store.reading() as tx:
        return await tx.mcp_servers.get(server_id)


async def _all_servers(store: WorkflowStore) -> list[McpServer]:
    async with store.reading() as tx:
        return sorted(await tx.mcp_servers.list(limit=_MAX_ITEMS), key=lambda server: server.name)


async def _remove_server(parts: WorkflowContext, word: str) -> McpServer:
    from kingdom.cli.workflow.names import find_mcp_server
    from kingdom.workflow.usecases.catalog import UnregisterMcpServer

    async with parts.store.reading() as tx:
        server = await find_mcp_server(tx, word)
    await UnregisterMcpServer(parts).execute(server.id)
    return server


def _server_document(server: McpServer) -> dict[str, Any]:
    """What may be shown: the names of variables, not their values."""
    return {
        "id": server.id,
        "name": server.name,
        "command": list(server.command),
        "url": server.url,
        "env": sorted(server.env),
        "usedBy": sorted(server.used_by),
    }


for _command in (mcp_add, mcp_ls, mcp_rm, mcp_serve):
    mcp_app.command()(_command)
