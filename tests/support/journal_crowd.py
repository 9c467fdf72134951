"""Many processes at one journal: ``python -m tests.support.journal_crowd LOG PROCESSES LINES``.

Each writes ``LINES`` lines with task ids ``PROCESS:NUMBER``, while another one rotates the log as soon as it has
``LINES`` times 50 bytes. All are forked from one process, so that they run at the same time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from kingdom.journal import Journal, rotate
from kingdom.journal.catalog import TaskFailed

_PADDING = "x" * 60


def main(log: str, processes: int, lines: int) -> int:
    """Start them, wait for the writers, and say whether all went well."""
    journal = Journal(log)
    rotator = fork(lambda: rotate_for_ever(log, lines * 50))
    writers = [fork(lambda process=process: write(journal, process, lines)) for process in range(processes)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) for writer in writers]
    os.kill(rotator, signal.SIGKILL)
    killed = os.waitstatus_to_exitcode(os.waitpid(rotator, 0)[1]) == -signal.SIGKILL
    return max(map(abs, codes)) if killed else 1


def fork(work: Callable[[], None]) -> int:
    """Do the work in a child, and return its process id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def write(journal: Journal, process: int, lines: int) -> None:
    """Append lines that can be told apart."""
    for number in range(lines):
        journal.emit(TaskFailed(f"{process}:{number}", _PADDING, 0), f"gen-{process}")


def rotate_for_ever(log: str, max_bytes: int) -> None:
    """Until it is killed, at whatever instant that is."""
    while True:
        rotate(log, datetime.now(UTC), max_bytes=max_bytes)
        time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
