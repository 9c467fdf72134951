"""``kingdom git`` and ``kingdom mcp``: the repositories and MCP servers that workflows use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import json_option, store_option, workflow_home_option, yes_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import with_store, with_workflows
from kingdom.cli.web import mcp_serve
from kingdom.cli.workflow.names import check_new_name, parse_assignments

if TYPE_CHECKING:
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.resources import Git, McpServer
    from kingdom.workflow.ports import WorkflowStore


_MAX_ITEMS = 100_000


@group("git")
def git_app() -> None:
    """Manage the repositories that workflows use."""


@command("add")
@argument("url", help="An https or ssh URL, user@host:path, or a local folder.")
@click.option("--name", metavar="NAME", help="The name. Default: the last part of the URL.")
@click.option("--check/--no-check", default=True, help="Try the repository first.")
@workflow_home_option
@store_option
@json_option
def git_add(url: str, name: str | None, check: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Register a repository.

    It is tried at once, and cloned when the first workflow needs it. For a private one over https, a token of its host
    is needed (git.credentials in system.yaml, or in workflows/settings.yaml outside a court).
    """
    full = _local_repository(url) or url
    called = name or re.split(r"[/:]", full.rstrip("/"))[-1].removesuffix(".git")
    made = with_workflows(home, store, lambda context: _add_git(context, called, full, check=check))
    if json:
        output.print_json(_git_document(made))
    else:
        output.say(f"{made.name} is registered as {made.id}")


@command("ls")
@workflow_home_option
@store_option
@json_option
def git_ls(home: Path | None, store: str | None, json: bool) -> None:
    """List repositories."""
    found = with_store(home, store, _all_gits)
    if json:
        output.print_json({"repositories": [_git_document(git) for git in found]})
    elif found:
        rows = [(git.name, git.url, git.id, len(git.used_by)) for git in found]
        output.print_table(("repository", "url", "id", "workflows"), rows, right=("workflows",))
    else:
        output.say("no repositories: kingdom git add URL registers one")


@command("rm")
@argument("repository", metavar="NAME", help="Its name or id.")
@yes_option
@workflow_home_option
@store_option
@json_option
def git_rm(repository: str, yes: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Remove a repository that no workflow uses.

    Templates lose their reference to it. Its clone is deleted, unless it holds work of workflows.
    """
    output.confirm(f"Delete {repository}? Templates lose their reference to it.", yes=yes)
    removed = with_workflows(home, store, lambda context: _remove_git(context, repository))
    if json:
        output.print_json({"deleted": _git_document(removed)})
    else:
        output.say(f"{removed.name} is deleted")


def _local_repository(url: str) -> str | None:
    """Return the absolute path of a repository on this machine, None for another URL; raise a usage error."""
    path = Path(url.removeprefix("file://")).expanduser()
    if not path.is_dir() and not url.startswith(("/", ".", "~", "file://")):
        return None
    if not path.is_dir():
        raise output.usage_error(f"there is no folder {path}: give the path or the URL of a git repository")
    if not ((path / ".git").exists() or (path / "HEAD").is_file()):
        raise output.usage_error(f"{path} is not a git repository: name the folder that has .git, or git init it")
    return str(path.resolve())


async def _add_git(context: WorkflowContext, name: str, url: str, *, check: bool) -> Git:
    from kingdom.gitops import RepositoryRefused
    from kingdom.gitops.names import check_url
    from kingdom.workflow.usecases.catalog import create_git

    check_url(url, allow_local=True)
    check_new_name(name, [git.name for git in await _all_gits(context.store)], "a repository")
    try:
        git_id = await create_git(context, name, url, check=check)
    except RepositoryRefused as error:
        raise RepositoryRefused(f"{error}; --no-check registers it all the same") from None
    async with context.store.reading() as tx:
        return await tx.gits.get(git_id)


async def _all_gits(store: WorkflowStore) -> list[Git]:
    async with store.reading() as tx:
        return sorted(await tx.gits.list(limit=_MAX_ITEMS), key=lambda git: git.name)


async def _remove_git(context: WorkflowContext, word: str) -> Git:
    from kingdom.cli.workflow.names import find_git
    from kingdom.workflow.usecases.catalog import delete_git

    async with context.store.reading() as tx:
        git = await find_git(tx, word)
    await delete_git(context, git.id)
    return git


def _git_document(git: Git) -> dict[str, Any]:
    return {"id": git.id, "name": git.name, "url": git.url, "usedBy": sorted(git.used_by)}


for _command in (git_add, git_ls, git_rm):
    git_app.add_command(_command)


@group("mcp")
def mcp_app() -> None:
    """Manage the MCP servers of agents, or serve the court as one."""


@command("add")
@argument("name", help="The name that templates use.")
@argument("command", nargs=-1, metavar="[-- COMMAND]", help="The program to run, with its arguments.")
@click.option("--url", metavar="URL", help="The address of a running server, instead of a command.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable of the program, or a header for a URL; ${NAME} is expanded when an agent starts.",
)
@workflow_home_option
@store_option
@json_option
def mcp_add(
    name: str,
    command: tuple[str, ...],
    url: str | None,
    env: tuple[str, ...],
    home: Path | None,
    store: str | None,
    json: bool,
) -> None:
    """Register an MCP server.

    It is a program (`kingdom mcp add NAME -- COMMAND`) or a URL (`--url`).
    """
    if bool(command) == bool(url):
        raise output.usage_error("give either a command after -- or a --url")
    variables = {key: str(value) for key, value in parse_assignments(env, "--env", nested=False).items()}
    _refuse_secrets(variables)
    made = with_workflows(home, store, lambda context: _add_server(context, name, list(command), url, variables))
    if json:
        output.print_json(_server_document(made))
    else:
        output.say(f"{made.name} is registered as {made.id}")


@command("ls")
@workflow_home_option
@store_option
@json_option
def mcp_ls(home: Path | None, store: str | None, json: bool) -> None:
    """List MCP servers.

    Values of variables are not shown.
    """
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


@command("rm")
@argument("server", metavar="NAME", help="Its name or id.")
@yes_option
@workflow_home_option
@store_option
@json_option
def mcp_rm(server: str, yes: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Unregister an MCP server that no workflow uses.

    Templates lose their reference to it.
    """
    output.confirm(f"Unregister {server}? Templates lose their reference to it.", yes=yes)
    removed = with_workflows(home, store, lambda context: _remove_server(context, server))
    if json:
        output.print_json({"unregistered": _server_document(removed)})
    else:
        output.say(f"{removed.name} is unregistered")


def _refuse_secrets(variables: dict[str, str]) -> None:
    """Raise an error for a value that looks like a secret: the store keeps only references to secrets."""
    from kingdom.base.text import looks_secret

    for name, value in variables.items():
        if looks_secret(value):
            raise output.usage_error(
                f"--env {name}: this looks like a secret; put it in the environment of the engine and refer to it: "
                f"--env '{name}=${{{name}}}'"
            )


async def _add_server(
    context: WorkflowContext, name: str, command: list[str], url: str | None, env: dict[str, str]
) -> McpServer:
    from kingdom.workflow.usecases.catalog import register_mcp_server

    check_new_name(name, [server.name for server in await _all_servers(context.store)], "an MCP server")
    server_id = await register_mcp_server(context, name, command=command, url=url, env=env)
    async with context.store.reading() as tx:
        return await tx.mcp_servers.get(server_id)


async def _all_servers(store: WorkflowStore) -> list[McpServer]:
    async with store.reading() as tx:
        return sorted(await tx.mcp_servers.list(limit=_MAX_ITEMS), key=lambda server: server.name)


async def _remove_server(context: WorkflowContext, word: str) -> McpServer:
    from kingdom.cli.workflow.names import find_mcp_server
    from kingdom.workflow.usecases.catalog import unregister_mcp_server

    async with context.store.reading() as tx:
        server = await find_mcp_server(tx, word)
    await unregister_mcp_server(context, server.id)
    return server


def _server_document(server: McpServer) -> dict[str, Any]:
    """Return what may be shown: the names of variables, not their values."""
    return {
        "id": server.id,
        "name": server.name,
        "command": list(server.command),
        "url": server.url,
        "env": sorted(server.env),
        "usedBy": sorted(server.used_by),
    }


for _command in (mcp_add, mcp_ls, mcp_rm, mcp_serve):
    mcp_app.add_command(_command)
