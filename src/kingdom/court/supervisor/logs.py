"""Console output and ``logs/system.log``."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from kingdom.agents.untrusted import clean, clean_line
from kingdom.court.loop import current_role
from kingdom.court.models import timestamp
from kingdom.journal import JournalError, Reader

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.journal import Entry


# ``logs/system.log``: what every role logs, a line for each thing: time, role, level, text.
#
# It is opened for each line, so whoever rotates it needs to tell nobody, and lines of several processes never mix.


SYSTEM_LOG_NAME: Final = "system.log"
_MAX_LINE_CHARS: Final = 4000  # characters of one line: an error may quote a whole document
_WARNING_PREFIX: Final = "warning: "


class SystemLogHandler(logging.Handler):
    """Writes what a process logs. Nothing fails because it cannot be written: a full disk is told elsewhere."""

    def __init__(self, home: Home, role: str) -> None:
        """``role`` is who this process is; a role that runs in it beside others is named by what it logs."""
        super().__init__()
        self._path = home.logs / SYSTEM_LOG_NAME
        self._role = role

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; an error with where it came from, indented."""
        lines = [record.getMessage()]
        if record.exc_info and record.exc_info[1] is not None:
            lines += "".join(traceback.format_exception(record.exc_info[1])).rstrip().split("\n")
        _append(self._path, record.created, current_role.get() or self._role, record.levelname, *lines)


def with_system_log(home: Home, say: Announce) -> Announce:
    """What is said of roles, said and also written to the log."""

    def both(role: str, text: str) -> None:
        say(role, text)
        level = "WARNING" if text.startswith(_WARNING_PREFIX) else "INFO"
        _append(home.logs / SYSTEM_LOG_NAME, time.time(), role, level, text.removeprefix(_WARNING_PREFIX))

    return both


def _append(path: Path, seconds: float, role: str, level: str, text: str, *more: str) -> None:
    first = f"{timestamp(seconds)} {role} {level} {clean_line(text, _MAX_LINE_CHARS)}"
    rest = (f"    {clean(line)[:_MAX_LINE_CHARS]}".replace("\n", " ") for line in more)
    data = "".join(f"{line}\n" for line in (first, *rest))
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, data.encode(errors="replace"))
        finally:
            os.close(descriptor)


# What a running court tells whoever watches: one line for each thing, with the time and the role.


Announce = Callable[[str, str], None]  # a role, and what there is to say of it
_CONTROL_CHARS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
_ROLE_COLOURS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_MAX_CONSOLE_CHARS: Final = 400  # characters of one line: an error may quote a whole document


class ConsoleWriter:
    """Writes lines to a stream; colours the role's name when that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._colours = self._stream.isatty() and not os.environ.get("NO_COLOR")

    def __call__(self, role: str, text: str) -> None:
        """Say something of a role. Nobody listening is no reason to fail."""
        shown = _CONTROL_CHARS.sub(" ", text)
        shown = shown if len(shown) <= _MAX_CONSOLE_CHARS else shown[: _MAX_CONSOLE_CHARS - 1] + "…"
        name = f"{role:<12}"
        if self._colours:
            name = f"\x1b[{_ROLE_COLOURS[sum(role.encode()) % len(_ROLE_COLOURS)]}m{name}\x1b[0m"
        try:
            self._stream.write(f"{time.strftime('%H:%M:%S')}  {name}  {shown}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._colours = False


class _ConsoleHandler(logging.Handler):
    def __init__(self, role: str, say: Announce) -> None:
        super().__init__()
        self._role = role
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text += f" ({type(error).__name__}: {error})"
        role = current_role.get() or self._role
        self._say(role, text if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {text}")


def configure_logging(role: str, say: Announce, home: Home) -> None:
    """Say what this process logs, from INFO on for our own modules and WARNING for all others; and write it down."""
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(_ConsoleHandler(role, say))
    root.addHandler(SystemLogHandler(home, role))
    root.setLevel(logging.WARNING)
    logging.getLogger("kingdom").setLevel(logging.INFO)


class JournalFollower:
    """Says what is new in the journal, each time it is called."""

    def __init__(self, home: Home, say: Announce) -> None:
        home.logs.mkdir(parents=True, exist_ok=True)
        self._say = say
        self._reader = Reader(home.journal, start="newest", report=lambda _problem: None)

    def __call__(self) -> None:
        """Say it. A journal that cannot be read now is read later."""
        with contextlib.suppress(JournalError, OSError):
            for entry in self._reader.read():
                self._say(entry.actor, format_entry(entry))


def format_entry(entry: Entry) -> str:
    """An entry of the journal, short enough to be read as it passes by."""
    return "  ".join([entry.type, *(str(value) for value in entry.fields.values() if value not in (None, ""))])
