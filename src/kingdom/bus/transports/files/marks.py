"""What is known of a DONE event beside its document.

DONE events are in no ledger and no memory, so that nothing grows with history, and their documents are not rewritten.
What remains to be said fits on the file itself:

* its modification time is the time it was done. The bus counts in microseconds, so the last three digits of the
  nanoseconds are free for the number of attempts;
* an extended attribute holds the last error, if there was one; a file system without them forgets it.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Final, NamedTuple

_MICRO: Final = 1_000_000
_MAX_ATTEMPTS: Final = 999
_ERROR: Final = "user.kingdom.error"
_MAX_ERROR: Final = 1000  # characters: file systems keep only a little beside the file


class Done(NamedTuple):
    """What the marks of a DONE file say."""

    at: float
    attempts: int
    error_code: str | None
    error_message: str | None


def mark(path: str, at: float, attempts: int, code: str | None, message: str | None) -> None:
    """Mark a file that is about to be DONE."""
    with contextlib.suppress(PermissionError):  # another user's file: its time stays as it is
        stamp = round(at * _MICRO) * 1000 + min(attempts, _MAX_ATTEMPTS)
        os.utime(path, ns=(stamp, stamp))
    if code is not None and hasattr(os, "setxattr"):
        text = json.dumps([code[:_MAX_ERROR], message and message[:_MAX_ERROR]])
        with contextlib.suppress(OSError):
            os.setxattr(path, _ERROR, text.encode())


def unmark(path: str) -> None:
    """Remove the error from a file that is DONE no more."""
    if hasattr(os, "removexattr"):
        with contextlib.suppress(OSError):
            os.removexattr(path, _ERROR)


def read_marks(path: str) -> Done:
    """Read the marks of a DONE file; raises ``FileNotFoundError`` when there is none."""
    micros, attempts = divmod(os.lstat(path).st_mtime_ns, 1000)
    code = message = None
    if hasattr(os, "getxattr"):
        with contextlib.suppress(OSError, ValueError):
            code, message = json.loads(os.getxattr(path, _ERROR))
    return Done(micros / _MICRO, attempts, code, message)


def done_at(stat: os.stat_result) -> float:
    """When a DONE file was done."""
    return stat.st_mtime_ns // 1000 / _MICRO
