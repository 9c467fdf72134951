"""Servers: ``kingdom web`` and ``kingdom mcp serve``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kingdom.cli import output
from kingdom.cli.options import store_option, workflow_home_option
from kingdom.cli.parsing import command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.web.settings import WebSettings


@command()
@workflow_home_option
@store_option
@click.option("--host", metavar="ADDRESS", help="The address to listen on. Default: the one in the configuration.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port; 0 takes a free one. Default: the one in the configuration (8700).",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Another host name to accept, for example behind a proxy; may be repeated.",
)
@click.option("--no-engine", is_flag=True, help="Do not run workflows in this process.")
@click.option("--link", is_flag=True, help="Print the link that logs a browser in. If a server runs, do nothing else.")
@click.option("--new-token", is_flag=True, help="Create a new token: every client has to log in again.")
@click.option("--open", "open_browser", is_flag=True, help="Open the dashboard in a browser.")
@click.option("--openapi", is_flag=True, help="Print the OpenAPI document of the API as JSON, and exit.")
def web(
    home: Path | None,
    store: str | None,
    host: str | None,
    port: int | None,
    allow_host: tuple[str, ...],
    no_engine: bool,
    link: bool,
    new_token: bool,
    open_browser: bool,
    openapi: bool,
) -> None:
    """Serve the dashboard, the API and live events.

    Runs until interrupted, in the home of a court or in any folder with workflows. `kingdom up` has a web server of its
    own: then use only --link, --open and --new-token.
    """
    if openapi:
        _print_openapi()
        return
    from kingdom.cli.session import errors_reported, find_workflow_home
    from kingdom.web.record import running_server, starting_server
    from kingdom.web.security.credentials import obtain_token, renew_token
    from kingdom.web.settings import settings_of

    root = find_workflow_home(home, store).root.parent
    if new_token:
        renew_token(root)
    token = obtain_token(root)
    running = starting_server(root) if link or new_token or open_browser else running_server(root)
    if running is not None and (link or new_token or open_browser):
        if new_token:
            output.say("created a new token: clients with the old one are disconnected within a second")
        _show_link(running.url, token, link=link or new_token, in_browser=open_browser)
        return
    with errors_reported():
        settings = _settings(settings_of(root), host, port, allow_host)
        settings.check()
    _warn_if_open_to_network(settings)
    _serve_web(root, settings, token, store=store, engine=not no_engine, link=link, in_browser=open_browser)


def _print_openapi() -> None:
    import asyncio

    from kingdom.web.app import openapi_document

    output.print_json(asyncio.run(openapi_document()))


def _settings(configured: WebSettings, host: str | None, port: int | None, allow_host: Sequence[str]) -> WebSettings:
    from dataclasses import replace

    allowed = (*configured.allowed_hosts, *allow_host)
    return replace(
        configured,
        host=configured.host if host is None else host,
        port=configured.port if port is None else port,
        allowed_hosts=allowed,
    )


def _warn_if_open_to_network(settings: WebSettings) -> None:
    from kingdom.web.settings import is_loopback

    if not is_loopback(settings.host):
        _warn(
            f"{settings.host} is open to the network: anyone with the token has full control, and plain HTTP "
            "exposes the token. Put a proxy with TLS in front of it"
        )


def _serve_web(
    root: Path, settings: WebSettings, token: str, *, store: str | None, engine: bool, link: bool, in_browser: bool
) -> None:
    from kingdom.base.garbage import collect_rarely, exclude_current
    from kingdom.cli.session import log_to, run_async
    from kingdom.cli.workflow.runner import stop_signals
    from kingdom.homes import WORKFLOWS_FOLDER
    from kingdom.web.app import create_app
    from kingdom.web.bootstrap import open_context
    from kingdom.web.server import listen, serve
    from kingdom.workflow.home import WorkflowHome

    async def run() -> None:
        import asyncio

        with (
            stop_signals() as stop,
            listen(root, settings) as listener,
            log_to(WorkflowHome(root / WORKFLOWS_FOLDER).log),
        ):
            async with (
                open_context(root, settings, token, store=store, engine=engine) as context,
                serve(create_app(context), context, listener) as running,
            ):
                collect_rarely()
                exclude_current()
                output.say(f"the dashboard is at {running.url} (Ctrl-C stops it)")
                _show_link(running.url, token, link=link or sys.stdout.isatty(), in_browser=in_browser)
                stopping, broken = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(running.wait())
                await asyncio.wait({stopping, broken}, return_when=asyncio.FIRST_COMPLETED)
                if broken.done():
                    broken.result()
                stopping.cancel()
                broken.cancel()
        output.say("the web server has stopped")

    run_async(run)


def _show_link(url: str, token: str, *, link: bool, in_browser: bool) -> None:
    """Print or open the login link. It contains the token: never write it to a log."""
    from kingdom.web.security.credentials import login_link

    address = login_link(url, token)
    if link:
        output.say(f"log in with {address}")
    if in_browser:
        import webbrowser

        if not webbrowser.open(address):
            _warn("no browser was found on this machine: open the link yourself")
            output.say(f"log in with {address}")


def _warn(text: str) -> None:
    click.echo(f"warning: {output.sanitize(text)}", err=True)


@command("serve")
@click.option("--read-only", is_flag=True, help="Offer only tools that change nothing.")
@click.option(
    "--person",
    metavar="NAME",
    help="Act as this person of kingdom token: with the tools of their role, signed with their name.",
)
@workflow_home_option
@store_option
def mcp_serve(read_only: bool, person: str | None, home: Path | None, store: str | None) -> None:
    """Serve the court over MCP on standard input and output.

    For an agent that reads tasks and starts work, for example: claude mcp add kingdom -- kingdom mcp serve --home DIR.
    Workflows started here run in the engine of the store, or in this process while it lives.
    """
    from kingdom.cli.session import find_workflow_home, run_async

    place = find_workflow_home(home, store)
    run_async(lambda: _serve_mcp(place.root.parent, store, person, read_only=read_only))


async def _serve_mcp(root: Path, store: str | None, name: str | None, *, read_only: bool) -> None:
    from kingdom.cli.session import log_to
    from kingdom.homes import WORKFLOWS_FOLDER
    from kingdom.web.bootstrap import open_context
    from kingdom.web.mcp_server import MCP_PERSON, make_server
    from kingdom.web.settings import WebSettings
    from kingdom.workflow.home import WorkflowHome

    with log_to(WorkflowHome(root / WORKFLOWS_FOLDER).log):  # standard output belongs to the protocol
        async with open_context(root, WebSettings(), "", store=store, engine=not read_only) as context:
            person = MCP_PERSON if name is None else context.tokens.named(name)
            await make_server(context, read_only=read_only, person=person).run_stdio_async()
