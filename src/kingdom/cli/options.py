"""Options and arguments that several commands share, and durations such as ``30s`` and ``7d``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal

import click

from kingdom.cli.parsing import argument

_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.5 on
    """Seconds, written as ``30s`` or ``7d``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; raise a usage error for what is not a duration."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = DurationType()
PATH: Final = click.Path(path_type=Path)

json_option = click.option("--json", is_flag=True, help="Print one JSON document, for programs.")
json_lines_option = click.option("--json", is_flag=True, help="Print events and agent output as JSON lines.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")

url_option = click.option(
    "--url",
    required=True,
    metavar="URL",
    envvar="KINGDOM_BUS_URL",
    show_envvar=True,
    help="The bus: files:///dir, sqlite:///file.db, postgresql://host/database or kafka://host:9092.",
)
stream_argument = argument("stream", help="The name of the stream.")
event_type_option = click.option("--type", "event_type", metavar="TYPE", help="Only events of this type.")
error_code_option = click.option("--code", metavar="CODE", help="Only events that failed with this error code.")

home_option = click.option(
    "--home",
    type=PATH,
    metavar="DIR",
    help="The home of the court. Default: KINGDOM_HOME, or the home that contains the working directory.",
)
task_argument = argument("task_id", metavar="TASK", help="The id of the task.")

workflow_home_option = click.option(
    "--home",
    type=PATH,
    metavar="DIR",
    help="The folder that contains workflows/; it need not be the home of a court. "
    "Default: KINGDOM_HOME, or the nearest such folder above the working directory.",
)
store_option = click.option(
    "--store",
    metavar="URL",
    envvar="KINGDOM_WORKFLOW_STORE",
    show_envvar=True,
    help="The store: sqlite:///file.db or postgresql://host/database. Default: workflows/workflows.db in the home.",
)
workflow_argument = argument("workflow", help="Its id, the start or end of the id, or its name.")
LandChoice = Literal["pull-request", "push", "checkout"]
LAND_CHOICES: Final[tuple[LandChoice, ...]] = ("pull-request", "push", "checkout")
checkpoint_argument = argument("checkpoint", help="Its id, the start or end of the id, or the name of its work.")


def parse_duration(text: str) -> float:
    """Return the seconds in ``text``; raise a ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 30s, 15m, 2h or 7d")
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
