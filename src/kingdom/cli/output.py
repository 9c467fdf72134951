"""Output of commands: tables for people, one JSON document for programs, one line for an error.

Text from events was written by others. It is printed without markup and without control characters, so that a payload
cannot move the cursor, recolour the terminal or reorder what the operator reads.

Tables need no library. On a terminal they are folded to its width; on a pipe nothing is folded or coloured. Live
displays draw the same tables through rich, which comes with the extra ``court``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TextIO, TypeAlias

import click

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.text import Text

FAILED: Final = 1
MISUSED: Final = 2
UNWANTED: Final = 3  # the event was taken, but nobody handles its type
INTERRUPTED: Final = 130

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_CONTROL_CHARACTERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_CODES: Final = {
    "bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "white": 37,
}  # fmt: skip
_GAP: Final = "  "  # between columns
_JOINTS: Final = "-/_."  # of ids, names and paths
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
        label = Styled("error:", "red").paint() if has_colours(sys.stderr) else "error:"
        line = " ".join(sanitize(str(error)).split())
        print(f"{label} {line}", file=sys.stderr)  # noqa: T201
    return error.exit_code


def warn(text: str) -> None:
    """Print a warning on standard error."""
    label = Styled("warning:", "yellow").paint() if has_colours(sys.stderr) else "warning:"
    print(f"{label} {sanitize(text)}", file=sys.stderr)  # noqa: T201


def note(text: str) -> None:
    """Print a line about the progress of a command on standard error."""
    line = Styled(sanitize(text), "dim").paint() if has_colours(sys.stderr) else sanitize(text)
    print(line, file=sys.stderr, flush=True)  # noqa: T201


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


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colours, and the user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def console() -> Console:
    """Return a console on standard output. It honours NO_COLOR, and on a pipe neither colours nor wraps."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, markup=False, highlight=False, emoji=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> None:
    """Print a table for people; columns named in ``right`` are aligned to the right."""
    show(Table(columns, rows, right))


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns."""
    listed = list(facts)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        say(f"{name:<{width}}  {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")


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


# Tables


class Styled(NamedTuple):
    """A text with a style, such as ``red`` or ``bold green``; an empty style is none."""

    text: str
    style: str

    def paint(self, text: str | None = None) -> str:
        """Return the text, or a part of it, with the codes of the style."""
        shown = sanitize(self.text) if text is None else text
        codes = ";".join(str(_CODES[word]) for word in self.style.split())
        return f"\x1b[{codes}m{shown}\x1b[0m" if codes else shown

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(sanitize(self.text), style=self.style)


class Table:
    """Rows under headings. Cells are folded where the table is wider than its place."""

    def __init__(self, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> None:
        self._columns = columns
        self._right = set(right)
        self._rows = [[cell if isinstance(cell, Styled) else Styled(str(cell), "") for cell in row] for row in rows]

    def render(self, width: int | None = None, *, colours: bool = False) -> str:
        """Return the table as lines of at most ``width`` characters; None means any width."""
        header = [Styled(column, "bold") for column in self._columns]
        rows = [header, *self._rows]
        widths = _fit([max(_cell_width(row[i]) for row in rows) for i in range(len(header))], width)
        return "\n".join(line for row in rows for line in self._row_lines(row, widths, colours))

    def _row_lines(self, row: Sequence[Styled], widths: Sequence[int], colours: bool) -> Iterable[str]:
        folded = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(len(lines) for lines in folded)):
            parts = []
            for column, cell, lines, width in zip(self._columns, row, folded, widths, strict=True):
                text = lines[number] if number < len(lines) else ""
                space = " " * (width - _width(text))
                shown = cell.paint(text) if colours and text else text
                parts.append(space + shown if column in self._right else shown + space)
            yield _GAP.join(parts).rstrip()

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text.from_ansi(self.render(colours=True), no_wrap=True, overflow="ellipsis")


Part: TypeAlias = Table | Styled


def show(*parts: Part) -> None:
    """Print tables and lines on standard output, with an empty line before each further table."""
    colours = has_colours(sys.stdout)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    shown: list[str] = []
    for part in parts:
        if isinstance(part, Table):
            shown += [*([""] if shown else []), part.render(width, colours=colours)]
        else:
            shown.append(part.paint() if colours else sanitize(part.text))
    print("\n".join(shown), flush=True)  # noqa: T201


def _fit(widths: list[int], width: int | None) -> list[int]:
    """Take from the widest columns what is too much."""
    if width is not None:
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        for _ in range(excess):
            widest = widths.index(max(widths))
            widths[widest] = max(1, widths[widest] - 1)
    return widths


def _cell_width(cell: Styled) -> int:
    return max((_width(line) for line in _lines(cell)), default=0)


def _lines(cell: Styled) -> list[str]:
    return sanitize(cell.text).expandtabs().splitlines()


def _fold(cell: Styled, width: int) -> list[str]:
    """Split a cell into lines of at most ``width``: at a space, else behind a joint of a name, else anywhere."""
    lines = []
    for line in _lines(cell):
        rest = line
        while _width(rest) > width:
            end = _prefix_length(rest, width)
            space = rest.rfind(" ", 1, end + 1)
            if space > 0:
                lines.append(rest[:space].rstrip())
                rest = rest[space + 1 :]
                continue
            joint = max(rest.rfind(one, 1, end) for one in _JOINTS) + 1
            end = joint if joint > end // 2 else end  # a line that is hardly begun helps nobody
            lines.append(rest[:end])
            rest = rest[end:]
        lines.append(rest)
    return lines or [""]


def step(command: str, does: str) -> str:
    """Return a command and what it does, as one line, or as several on a terminal that is too narrow for it.

    The command, and a path or address in what it does, stay in one piece, so that they can be copied.
    """
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or _width(f"{command} {does}") <= columns:
        return f"{command} {does}"
    more = textwrap.wrap(does, columns - 2, break_long_words=False, break_on_hyphens=False)
    return "\n".join((command, *(f"  {part}" for part in more)))


def wrap(text: str) -> str:
    """Return prose with line ends between its words for the width of the terminal; elsewhere as it is.

    Not for what a person copies, such as a command: a terminal joins only the lines that it broke itself.
    """
    if not sys.stdout.isatty():
        return text
    return "\n".join(_fold(Styled(text, ""), shutil.get_terminal_size().columns))


def _prefix_length(text: str, width: int) -> int:
    """Return how many characters of ``text`` fit; at least one, so that a wide character always finds a place."""
    used = 0
    for index, character in enumerate(text):
        used += _width(character)
        if used > width:
            return max(1, index)
    return len(text)


def _width(text: str) -> int:
    """Return the cells that ``text`` takes on a terminal: two for a Hangul syllable, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(one) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )
