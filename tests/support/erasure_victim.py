"""``kingdom forget`` in a process that dies at a chosen change of a file."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support import cli_process

_NAMES = ("os.rename", "os.remove", "os.rmdir", "os.utime", "os.truncate")


def forget(folder: Path, home: Path, words: list[str], point: int) -> None:
    """Run the command; ``point`` 0: to its end. ``folder/points`` says how many changes there were."""
    counted = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal counted
        named = next((os.fsdecode(one) for one in arguments if isinstance(one, str | bytes | Path)), "")
        if not named.startswith(str(home)) and event != "os.remove":  # rmtree names files in an open folder
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in _NAMES or writes:
            counted += 1
            if counted == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    try:
        cli_process.run(folder, str(folder), words)
    finally:
        (folder / "points").write_text(str(counted))
