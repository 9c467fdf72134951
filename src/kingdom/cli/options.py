"""Options and arguments that several commands share, and durations such as ``30s`` and ``7d``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
JsonLinesOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print events and agent output as JSON lines.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

UrlOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="KINGDOM_BUS_URL",
        show_envvar=True,
        metavar="URL",
        help="The bus: files:///dir, sqlite:///file.db or postgresql://host/database.",
    ),
]
StreamArgument: TypeAlias = Annotated[str, typer.Argument(metavar="STREAM", help="The name of the stream.")]
EventTypeOption: TypeAlias = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only events of this type.", show_default=False)
]
ErrorCodeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--code", metavar="CODE", help="Only events that failed with this error code.", show_default=False),
]

HomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The home of the court. Default: KINGDOM_HOME, or the home that contains the working directory.",
        show_default=False,
    ),
]
TaskArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TASK", help="The id of the task.")]

WorkflowHomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The folder that contains workflows/; it need not be the home of a court. "
        "Default: KINGDOM_HOME, or the nearest such folder above the working directory.",
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
        help="The store: sqlite:///file.db or postgresql://host/database. Default: workflows/workflows.db in the home.",
        show_default=False,
    ),
]
WorkflowArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="WORKFLOW", help="Its id, the start or end of the id, or its name.")
]
CheckpointArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="Its id, the start or end of the id, or the name of its work.")
]


def parse_duration(text: str) -> float:
    """Return the seconds in ``text``; raise a usage error for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration: write 30s, 15m, 2h or 7d")
    return float(match.group(1)) * _SECONDS_PER_UNIT[match.group(2)]


def format_duration(seconds: float) -> str:
    """Format a duration with its two largest units: ``1d 4h``, ``3m 12s``, ``0.4s``."""
    if seconds < 60:
        tenths = int(seconds * 10)  # truncated, not rounded: 59.97 must not become 60
        return f"{tenths / 10:g}s"
    rest = int(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_SECONDS_PER_UNIT[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def duration_or_dash(seconds: float | None) -> str:
    """Format a duration that may be unknown."""
    return "–" if seconds is None else format_duration(seconds)
