"""Closing logs that are due: the journal by day and by size, the logs of plain text by size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.journal import JournalError, copy_to_old, rotate, rotate_to_old
from kingdom.journal.catalog import RecoveryLogRotated

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from kingdom.court.home import Home
    from kingdom.journal import EventData, Rotation

TEXT_LOGS: Final = ("system.log", "tasks.log", "metrics.log", "console.log")  # each line is written by opening it
OUTPUT_LOG: Final = "supervisor.log"  # what a court in the background prints: all its processes hold it open
METRICS_LOG: Final = "metrics.log"
_MIB: Final = 1024 * 1024


def rotate_logs(
    home: Home, now: datetime, max_bytes: int, emit: Callable[[EventData], None], warn: Callable[[str, str], None]
) -> None:
    """Rotate what is due; ``now`` is in the court's time zone. One log that cannot be rotated hinders no other."""
    turns: dict[str, Callable[[], Rotation | None]] = {
        home.journal.name: lambda: rotate(home.journal, now, max_bytes=max_bytes)
    }
    for name in TEXT_LOGS:
        turns[name] = lambda path=home.logs / name: rotate_to_old(path, max_bytes=max_bytes)  # type: ignore[misc]
    turns[OUTPUT_LOG] = lambda: copy_to_old(home.logs / OUTPUT_LOG, max_bytes=max_bytes)
    for name, turn in turns.items():
        try:
            done = turn()
        except (JournalError, OSError) as error:
            warn(f"rotate {name}", str(error))
        else:
            warn(f"rotate {name}", "")
            if done is not None:
                emit(RecoveryLogRotated(file=done.file.name, size_mb=round(done.size / _MIB, 3)))
