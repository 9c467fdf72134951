"""How commands speak: tables for people, one JSON document for programs, one line for an error.

Text that comes out of events was written by somebody else, so it is shown without markup and without control
characters: a payload cannot move the cursor, recolour the terminal or turn the order of what the operator reads.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HALVES: Final = re.compile("[\ud800-\udfff]")  # of surrogate pairs
_PIPE_WIDTH: Final = 10_000  # columns when nobody looks: nothing is cut off for `grep` and `awk`


class Failure(Exception):
    """Something a command must tell its user, and end."""

    def __init__(self, code: str, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code


def misuse(message: str) -> Failure:
    """The failure of a command called with arguments that do not go together."""
    return Failure("USAGE", message, MISUSED)


def usage_failure(error: Exception) -> Failure:
    """Turn typer's complaint about the arguments into a failure that names the help page."""
    message = getattr(error, "format_message", error.__str__)().rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kingdom"
    return misuse(f"{message} (see `{path} --help`)")


def report(failure: Failure, as_json: bool) -> int:
    """Tell the user about a failure, on standard error or as the JSON document; return the exit code."""
    if as_json:
        emit({"error": {"code": failure.code, "message": str(failure)}})
    else:
        red = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        label = "\x1b[31merror:\x1b[0m" if red else "error:"
        line = " ".join(clean(str(failure)).split())
        print(f"{label} {line}", file=sys.stderr)  # noqa: T201 - this is the command line's voice
    return failure.exit_code


def say(text: str = "") -> None:
    """Print a line for people."""
    print(clean(text), flush=True)  # noqa: T201


def own_name() -> str:
    """How to call this program from a shell, where it was started from."""
    return "kingdom" if shutil.which("kingdom") else f"{shlex.quote(sys.executable)} -m kingdom"


def emit(document: Mapping[str, Any]) -> None:
    """Print the JSON document of a command."""
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str)
    if _HALVES.search(text):  # JSON can say them, UTF-8 cannot
        text = json.dumps(document, indent=2, default=str)
    print(text, flush=True)  # noqa: T201


def clean(text: str) -> str:
    """Replace what steers a terminal, and what none can show, with a visible stand-in; newline and tab stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def console() -> Console:
    """A console on standard output. It honours NO_COLOR, and on a pipe neither colours nor wraps."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, markup=False, highlight=False, emoji=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> Table:
    """Build a table; columns named in ``right`` are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    plain = not sys.stdout.isatty()
    aligned = set(right)
    result = Table(box=None if plain else box.SIMPLE_HEAD, pad_edge=not plain, header_style="bold")
    for column in columns:
        result.add_column(column, justify="right" if column in aligned else "left", overflow="fold")
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else Text(clean(str(cell))) for cell in row))
    return result


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> None:
    """Print a table for people."""
    console().print(table(columns, rows, right))


def styled(text: str, style: str) -> Any:
    """A cell with a colour of its own."""
    from rich.text import Text

    return Text(clean(text), style=style)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; ``--yes`` answers beforehand. Without a terminal, refuse."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure("NOT_CONFIRMED", f"{question} Nobody is here to ask: repeat with --yes to do it", MISUSED)
    if not typer.confirm(clean(question), err=True):
        raise Failure("NOT_CONFIRMED", "nothing was changed")


def help_when_alone(context: typer.Context) -> None:
    """Show the help page when a group is called without a command."""
    if context.invoked_subcommand is None:
        print(context.get_help())  # noqa: T201
        raise typer.Exit
