"""Options and arguments that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

# Spans of time as people write them: ``30s``, ``15m``, ``2h``, ``7d``.


_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Return the seconds in ``text``, or refuse it as a usage error."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration: write 30s, 15m, 2h or 7d")
    return float(match.group(1)) * _SECONDS_PER_UNIT[match.group(2)]


def format_duration(seconds: float) -> str:
    """Write a span with its two largest units: ``1d 4h``, ``3m 12s``, ``0.4s``."""
    if seconds < 60:
        tenths = int(seconds * 10)  # cut, not rounded: 59.97 is not 60
        return f"{tenths / 10:g}s"
    rest = int(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_SECONDS_PER_UNIT[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


# The options that several bus commands share.


UrlOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="KINGDOM_BUS_URL",
        show_envvar=True,
        metavar="URL",
        help="The bus: files:///dir, sqlite:///file.db or postgresql://….",
    ),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
StreamArgument: TypeAlias = Annotated[str, typer.Argument(metavar="STREAM", help="The name of the stream.")]
EventTypeOption: TypeAlias = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only events of this type.", show_default=False)
]
ErrorCodeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--code", metavar="CODE", help="Only events that failed with this error code.", show_default=False),
]


# What several commands of the court take.


TaskArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TASK", help="The id of the task.")]


# What several commands of workflows take.


WorkflowHomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The folder whose workflows/ is meant; any folder will do, it need not be a court's. "
        "Else KINGDOM_HOME, else the one around the working folder.",
        show_default=False,
    ),
]
StoreOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="KINGDOM_WORKFLOW_STORE",
        show_envvar=True,
        metavar="URL",
        help="The store: sqlite:///file.db or postgresql://…. Else workflows/workflows.db in the home.",
        show_default=False,
    ),
]
WorkflowArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="WORKFLOW", help="Its id, the beginning or end of that, or its name.")
]
CheckpointArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="Its id, the beginning or end of that, or the name of its work.")
]
