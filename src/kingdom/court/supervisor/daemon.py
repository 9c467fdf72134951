"""Going into the background: the caller returns once the court is up, or knows why it is not."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from kingdom.court.errors import CourtError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class NotStarted(CourtError):
    """The process in the background ended before it was ready."""

    code = "NOT_STARTED"


def detach(log: Path, run: Callable[[Callable[[], None]], object]) -> int:
    """Call ``run(ready)`` in a process of its own, without a terminal; what it prints goes to ``log``.

    Returns the process id once ``ready`` was called there. Raises :class:`NotStarted` with what went wrong otherwise.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        said = os.read(reading, 65536)  # not to its end: the roles were forked with the other end in hand
        os.close(reading)
        if said == b"ready":
            return pid
        os.waitpid(pid, 0)
        raise NotStarted(said.decode(errors="replace") or f"it ended at once: {log} may say why")
    os.close(reading)
    _background(log, run, writing)
    os._exit(0)


def _background(log: Path, run: Callable[[Callable[[], None]], object], writing: int) -> None:
    told = False

    def tell(words: bytes) -> None:
        nonlocal told
        if not told:
            told = True
            os.write(writing, words)
            os.close(writing)

    try:
        os.setsid()
        _redirect(log)
        run(lambda: tell(b"ready"))
    except BaseException as error:  # noqa: BLE001 - nobody above us: this process ends here
        with contextlib.suppress(OSError):
            tell(str(error).encode(errors="replace"))
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _redirect(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
