"""``logs/system.log``: what every role logs, a line for each thing: time, role, level, text.

It is opened for each line, so whoever rotates it needs to tell nobody, and lines of several processes never mix.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import traceback
from typing import TYPE_CHECKING, Final

from kingdom.agents.untrusted import clean, clean_line
from kingdom.court.loop import current_role
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.supervisor.speech import Say

NAME: Final = "system.log"
_LONGEST: Final = 4000  # characters of one line: an error may quote a whole document
_WARNING: Final = "warning: "


class SystemLog(logging.Handler):
    """Writes what a process logs. Nothing fails because it cannot be written: a full disk is told elsewhere."""

    def __init__(self, home: Home, role: str) -> None:
        """``role`` is who this process is; a role that runs in it beside others is named by what it logs."""
        super().__init__()
        self._path = home.logs / NAME
        self._role = role

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; an error with where it came from, indented."""
        lines = [record.getMessage()]
        if record.exc_info and record.exc_info[1] is not None:
            lines += "".join(traceback.format_exception(record.exc_info[1])).rstrip().split("\n")
        _append(self._path, record.created, current_role.get() or self._role, record.levelname, *lines)


def recorded(home: Home, say: Say) -> Say:
    """What is said of roles, said and also written to the log."""

    def both(role: str, text: str) -> None:
        say(role, text)
        level = "WARNING" if text.startswith(_WARNING) else "INFO"
        _append(home.logs / NAME, time.time(), role, level, text.removeprefix(_WARNING))

    return both


def _append(path: Path, seconds: float, role: str, level: str, text: str, *more: str) -> None:
    first = f"{timestamp(seconds)} {role} {level} {clean_line(text, _LONGEST)}"
    rest = (f"    {clean(line)[:_LONGEST]}".replace("\n", " ") for line in more)
    data = "".join(f"{line}\n" for line in (first, *rest))
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, data.encode(errors="replace"))
        finally:
            os.close(descriptor)
