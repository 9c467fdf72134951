"""Write state files durably in batches: concurrent writers share one wait for the disk."""
# ruff: noqa: PTH103, PTH104, PTH108, PTH120

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from kingdom.base.batches import Batcher
from kingdom.base.files import sync_directory, temporary_prefix
from kingdom.base.syncer import Syncer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    File = tuple[Path, str | bytes]


class BatchWriter:
    """Write files for one process; create missing folders.

    As with :func:`kingdom.base.files.write_atomic`, a reader sees the old file or the new one.
    """

    def __init__(self) -> None:
        self._syncer = Syncer()
        self._batches = Batcher[tuple["File", ...]](self._write)

    async def write(self, *files: File) -> None:
        """Write files durably: after the return they survive a power cut. They appear one by one, in this order."""
        await self._batches.do(files)

    def close(self) -> None:
        """End the threads. A later :meth:`write` starts them again."""
        self._syncer.close()

    def _write(self, pieces: Sequence[tuple[File, ...]]) -> None:
        prefix = temporary_prefix()
        new: list[tuple[str, bytes]] = []
        renames: list[tuple[str, str]] = []
        for file, data in (one for piece in pieces for one in piece):
            folder, name = os.path.split(file)
            temporary = f"{folder}/{prefix}{len(new)}-{name}"
            new.append((temporary, data.encode() if isinstance(data, str) else data))
            renames.append((temporary, os.fspath(file)))
        folders = list(dict.fromkeys(os.path.dirname(path) for _, path in renames))
        try:
            for folder in folders:
                os.makedirs(folder, exist_ok=True)
            self._syncer.write(folders[0], new)
            for temporary, path in renames:
                os.rename(temporary, path)
        except OSError:
            for temporary, _ in renames:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise
        for folder in folders:
            sync_directory(folder)
