"""Console output of a running court, and ``logs/system.log``.

Each line of ``system.log`` has time, role, level and text. The file is opened for each line, so rotation needs no
coordination, and lines of several processes never mix.
"""

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


SYSTEM_LOG_NAME: Final = "system.log"
_MAX_LINE_CHARS: Final = 4000  # an error may quote a whole document
_WARNING_PREFIX: Final = "warning: "


class SystemLogHandler(logging.Handler):
    """Writes log records to ``system.log``. Write errors are ignored: a full disk is reported elsewhere."""

    def __init__(self, home: Home, role: str) -> None:
        """``role`` is the default; when several roles share the process, :data:`current_role` has the right one."""
        super().__init__()
        self._path = home.logs / SYSTEM_LOG_NAME
        self._role = role

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; an exception with its indented traceback."""
        lines = [record.getMessage()]
        if record.exc_info and record.exc_info[1] is not None:
            lines += "".join(traceback.format_exception(record.exc_info[1])).rstrip().split("\n")
        _append(self._path, record.created, current_role.get() or self._role, record.levelname, *lines)


def with_system_log(home: Home, say: Announce) -> Announce:
    """Return a function that announces a line and also writes it to ``system.log``."""

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


# ── console output ────────────────────────────────────────────────────────────────────────────────────────────────

Announce = Callable[[str, str], None]  # takes a role and a text
_CONTROL_CHARS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
_ROLE_COLOURS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_MAX_CONSOLE_CHARS: Final = 400  # an error may quote a whole document


class ConsoleWriter:
    """Writes lines with time and role to a stream; colours the role's name on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._colours = self._stream.isatty() and not os.environ.get("NO_COLOR")

    def __call__(self, role: str, text: str) -> None:
        """Write a line about a role. A closed stream is ignored."""
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
    """Send log records to ``say`` and to ``system.log``: from INFO on for our modules, from WARNING on for others."""
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(_ConsoleHandler(role, say))
    root.addHandler(SystemLogHandler(home, role))
    root.setLevel(logging.WARNING)
    logging.getLogger("kingdom").setLevel(logging.INFO)


class JournalFollower:
    """Announces the new journal entries at each call."""

    def __init__(self, home: Home, say: Announce) -> None:
        home.logs.mkdir(parents=True, exist_ok=True)
        self._say = say
        self._reader = Reader(home.journal, start="newest", report=lambda _problem: None)

    def __call__(self) -> None:
        """Announce the new entries. A journal that cannot be read now is read at a later call."""
        with contextlib.suppress(JournalError, OSError):
            for entry in self._reader.read():
                self._say(entry.actor, format_entry(entry))


def format_entry(entry: Entry) -> str:
    """Format a journal entry as one short line."""
    return "  ".join([entry.type, *(str(value) for value in entry.fields.values() if value not in (None, ""))])
