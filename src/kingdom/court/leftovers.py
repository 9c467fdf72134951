"""What killed processes were writing, and nobody will rename into place any more."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_ABANDONED: Final = 60.0  # seconds: no write takes that long


def sweep(folder: Path) -> None:
    """Remove it from a folder. Work goes on where that is not possible."""
    with contextlib.suppress(OSError):
        for path in folder.glob(".tmp-*"):
            if time.time() - path.lstat().st_mtime > _ABANDONED:
                path.unlink()
