"""``kingdom mcp serve``: the court and its workflows as an MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli.workflow.options import HomeOption, StoreOption

if TYPE_CHECKING:
    from pathlib import Path


def serve(
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer only tools that look, and none that change anything.")
    ] = False,
    home: HomeOption = None,
    store: StoreOption = None,
) -> None:
    """Be an MCP server on standard input and output, for an agent that is to see tasks and start work.

    As in: claude mcp add kingdom -- kingdom mcp serve --home DIR. Workflows started here are worked on by whoever runs
    the engine, else by this process for as long as it lives.
    """
    from kingdom.cli.home import errors_told
    from kingdom.cli.workflow.place import find_place
    from kingdom.cli.workflow.session import told

    place = find_place(home, store)
    with errors_told():
        told(lambda: _serve(place.root.parent, store, read_only=read_only))


async def _serve(root: Path, store: str | None, *, read_only: bool) -> None:
    from kingdom.cli.workflow.session import log_to
    from kingdom.place import FOLDER
    from kingdom.web.mcpserver import make_server
    from kingdom.web.opening import open_context
    from kingdom.web.settings import WebSettings
    from kingdom.workflow.home import WorkflowHome

    with log_to(WorkflowHome(root / FOLDER).log):  # standard output is the protocol's
        async with open_context(root, WebSettings(), "", store=store, engine=not read_only) as context:
            await make_server(context, read_only=read_only).run_stdio_async()
