"""What a running court tells whoever watches: one line for each thing, with the time and the role."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from kingdom.court.loop import current_role
from kingdom.court.system_log import SystemLog
from kingdom.journal import JournalError, Reader

if TYPE_CHECKING:
    from kingdom.court.home import Home
    from kingdom.journal import Entry

Say = Callable[[str, str], None]  # a role, and what there is to say of it
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
_COLOURS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_LONGEST: Final = 400  # characters of one line: an error may quote a whole document


class Speaker:
    """Writes lines to a stream; colours the role's name when that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._colours = self._stream.isatty() and not os.environ.get("NO_COLOR")

    def __call__(self, role: str, text: str) -> None:
        """Say something of a role. Nobody listening is no reason to fail."""
        shown = _CONTROL.sub(" ", text)
        shown = shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
        name = f"{role:<12}"
        if self._colours:
            name = f"\x1b[{_COLOURS[sum(role.encode()) % len(_COLOURS)]}m{name}\x1b[0m"
        try:
            self._stream.write(f"{time.strftime('%H:%M:%S')}  {name}  {shown}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._colours = False


class _SpeakingHandler(logging.Handler):
    def __init__(self, role: str, say: Say) -> None:
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


def speak_logs(role: str, say: Say, home: Home) -> None:
    """Say what this process logs, from INFO on for our own modules and WARNING for all others; and write it down."""
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(_SpeakingHandler(role, say))
    root.addHandler(SystemLog(home, role))
    root.setLevel(logging.WARNING)
    logging.getLogger("kingdom").setLevel(logging.INFO)


class JournalFollower:
    """Says what is new in the journal, each time it is called."""

    def __init__(self, home: Home, say: Say) -> None:
        home.logs.mkdir(parents=True, exist_ok=True)
        self._say = say
        self._reader = Reader(home.journal, start="newest", report=lambda _problem: None)

    def __call__(self) -> None:
        """Say it. A journal that cannot be read now is read later."""
        with contextlib.suppress(JournalError, OSError):
            for entry in self._reader.read():
                self._say(entry.actor, line_of(entry))


def line_of(entry: Entry) -> str:
    """An entry of the journal, short enough to be read as it passes by."""
    return "  ".join([entry.type, *(str(value) for value in entry.fields.values() if value not in (None, ""))])
