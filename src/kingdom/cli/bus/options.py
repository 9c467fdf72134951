"""The options that several bus commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="KINGDOM_BUS_URL",
        show_envvar=True,
        metavar="URL",
        help="The bus: files:///dir, sqlite:///file.db or postgresql://….",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Stream: TypeAlias = Annotated[str, typer.Argument(metavar="STREAM", help="The name of the stream.")]
EventType: TypeAlias = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only events of this type.", show_default=False)
]
ErrorCode: TypeAlias = Annotated[
    str | None,
    typer.Option("--code", metavar="CODE", help="Only events that failed with this error code.", show_default=False),
]
