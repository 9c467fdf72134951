"""Output of commands: tables for people, one JSON document for programs, one line for an error.

Text from events was written by others. It is printed without markup and without control characters, so that a payload
cannot move the cursor, recolour the terminal or reorder what the operator reads.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import click

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.table import Table

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130

_CONTROL_CHARACTERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_PIPE_COLUMNS: Final = 10_000  # on a pipe nothing is cut off, for `grep` and `awk`


class CommandError(Exception):
    """Ends a command with a message for its user."""

    def __init__(self, code: str, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code


def usage_error(message: str) -> CommandError:
    """Return the error of a command whose arguments do not fit together."""
    return CommandError("USAGE", message, MISUSED)


def from_usage_error(error: click.ClickException) -> CommandError:
    """Convert a usage error of click, and name the help page."""
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kingdom"
    return usage_error(f"{message} (see `{path} --help`)")


def print_error(error: CommandError, as_json: bool) -> int:
    """Print an error on standard error, or as the JSON document; return the exit code."""
    if as_json:
        print_json({"error": {"code": error.code, "message": str(error)}})
    else:
        red = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        label = "\x1b[31merror:\x1b[0m" if red else "error:"
        line = " ".join(sanitize(str(error)).split())
        print(f"{label} {line}", file=sys.stderr)  # noqa: T201
    return error.exit_code


def say(text: str = "") -> None:
    """Print a line for people."""
    print(sanitize(text), flush=True)  # noqa: T201


def print_json(document: Mapping[str, Any]) -> None:
    """Print the JSON document of a command."""
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str)
    if _SURROGATES.search(text):  # JSON can express them as escapes, UTF-8 cannot
        text = json.dumps(document, indent=2, default=str)
    print(text, flush=True)  # noqa: T201


def print_json_line(document: Mapping[str, Any]) -> None:
    """Print one document of a stream of JSON lines."""
    print(json.dumps(document, ensure_ascii=False), flush=True)  # noqa: T201


def program_name() -> str:
    """Return how to call this program from a shell."""
    return "kingdom" if shutil.which("kingdom") else f"{shlex.quote(sys.executable)} -m kingdom"


def sanitize(text: str) -> str:
    """Replace characters that control a terminal or that it cannot show; newline and tab stay."""
    return _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)


def console() -> Console:
    """Return a console on standard output. It honours NO_COLOR, and on a pipe neither colours nor wraps."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, markup=False, highlight=False, emoji=False)


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
        result.add_row(*(cell if isinstance(cell, Text) else Text(sanitize(str(cell))) for cell in row))
    return result


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> None:
    """Print a table for people."""
    console().print(table(columns, rows, right))


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns."""
    listed = list(facts)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        say(f"{name:<{width}}  {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")


def styled(text: str, style: str) -> Any:
    """Return a table cell in a colour of its own."""
    from rich.text import Text

    return Text(sanitize(text), style=style)


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: ``1 event``, ``2 events``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone, unless ``--yes`` was given. Refuse without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            "NOT_CONFIRMED", f"{question} There is no terminal to ask on: repeat the command with --yes", MISUSED
        )
    if not click.confirm(sanitize(question), err=True):
        raise CommandError("NOT_CONFIRMED", "not confirmed: nothing was changed")


class View:
    """Something shown for the length of a ``with`` block. The base class leaves the terminal alone."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Restore the terminal."""


class LiveDisplay(View):
    """A display on the terminal that is redrawn in place."""

    def __init__(self, overflow: Literal["ellipsis", "crop"] = "ellipsis") -> None:
        from rich.live import Live

        self._live = Live(console=console(), auto_refresh=False, vertical_overflow=overflow)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def leave(self) -> None:
        """Stop drawing; the last display stays on the terminal."""
        self._live.stop()

    def draw(self, content: RenderableType) -> None:
        """Replace what is shown."""
        self._live.update(content, refresh=True)
