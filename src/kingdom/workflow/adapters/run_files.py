"""What the runs of a Work leave: a folder for each, and what its agent said. The ledger, with the cost, stays."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path


class RunFiles:
    """The folders of runs, and their transcripts. Runs of a Work are called ``<work id>.…``."""

    def __init__(self, runs: Path, sessions: Path) -> None:
        self._runs = runs
        self._sessions = sessions

    async def remove(self, work_id: str) -> None:
        """Remove everything the runs of a Work left; may be repeated."""
        await asyncio.to_thread(self._remove, f"{work_id}.")

    def _remove(self, prefix: str) -> None:
        for folder in (self._runs, self._sessions):
            names = [path for path in _entries(folder) if path.name.startswith(prefix)]
            for path in names:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        path.unlink()


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []
