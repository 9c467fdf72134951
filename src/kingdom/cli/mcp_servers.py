"""``kingdom mcp …``: the MCP servers that agents of workflows can be given, and the court as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Yes
from kingdom.cli.mcp_serve import serve
from kingdom.cli.workflow.options import HomeOption, StoreOption
from kingdom.cli.workflow.session import in_parts, in_store
from kingdom.cli.workflow.settings import check_new_name, settings

if TYPE_CHECKING:
    from kingdom.workflow.domain.sources import McpServer
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.ports import Store

app = typer.Typer()
_MOST = 100_000


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Look after the MCP servers of workflows' agents; be one yourself (serve)."""
    output.help_when_alone(context)


def add(
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
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Register an MCP server: a program (`kingdom mcp add NAME -- COMMAND …`) or a URL (`--url`)."""
    if bool(command) == bool(url):
        raise output.misuse("give a command after -- or a --url, one of them")
    variables = {key: str(value) for key, value in settings(env or [], "--env", nested=False).items()}
    _refuse_secrets(variables)
    made = in_parts(home, store, lambda parts: _add(parts, name, command or [], url, variables))
    if json:
        output.emit(_document(made))
    else:
        output.say(f"{made.name} is registered as {made.id}")


def ls(home: HomeOption = None, store: StoreOption = None, json: Json = False) -> None:
    """List the MCP servers. Values of variables are not shown."""
    found = in_store(home, store, _all)
    if json:
        output.emit({"mcpServers": [_document(server) for server in found]})
    elif found:
        rows = [
            (one.name, one.url or " ".join(one.command), ", ".join(sorted(one.env)), one.id, len(one.used_by))
            for one in found
        ]
        output.print_table(("server", "command or url", "variables", "id", "workflows"), rows, right=("workflows",))
    else:
        output.say("no MCP servers: kingdom mcp add NAME -- COMMAND registers one")


def rm(
    server: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    yes: Yes = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Unregister an MCP server that no workflow uses. Templates forget it."""
    output.confirm(f"Unregister {server}? Templates that name it will forget it.", yes=yes)
    removed = in_parts(home, store, lambda parts: _remove(parts, server))
    if json:
        output.emit({"unregistered": _document(removed)})
    else:
        output.say(f"{removed.name} is unregistered")


def _refuse_secrets(variables: dict[str, str]) -> None:
    """The store is no place for a secret: a reference to one is."""
    from kingdom.yamlfile import looks_secret

    for name, value in variables.items():
        if looks_secret(value):
            raise output.misuse(
                f"--env {name}: this looks like a secret; put it in the environment of the engine and refer to it: "
                f"--env '{name}=${{{name}}}'"
            )


async def _add(parts: Parts, name: str, command: list[str], url: str | None, env: dict[str, str]) -> McpServer:
    from kingdom.workflow.usecases.register_mcp_server import RegisterMcpServer

    check_new_name(name, [server.name for server in await _all(parts.store)], "an MCP server")
    server_id = await RegisterMcpServer(parts).execute(name, command=command, url=url, env=env)
    async with parts.store.reading() as tx:
        return await tx.mcp_servers.get(server_id)


async def _all(store: Store) -> list[McpServer]:
    async with store.reading() as tx:
        return sorted(await tx.mcp_servers.list(limit=_MOST), key=lambda server: server.name)


async def _remove(parts: Parts, word: str) -> McpServer:
    from kingdom.cli.workflow.finding import find_mcp_server
    from kingdom.workflow.usecases.unregister_mcp_server import UnregisterMcpServer

    async with parts.store.reading() as tx:
        server = await find_mcp_server(tx, word)
    await UnregisterMcpServer(parts).execute(server.id)
    return server


def _document(server: McpServer) -> dict[str, Any]:
    """What may be shown: the names of variables, not their values."""
    return {
        "id": server.id,
        "name": server.name,
        "command": list(server.command),
        "url": server.url,
        "env": sorted(server.env),
        "usedBy": sorted(server.used_by),
    }


for _command in (add, ls, rm, serve):
    app.command()(_command)
