"""Rewrite lines of a log without moving any: positions of readers stay valid.

A cursor recognises a file by a fingerprint of its first bytes. When these change, ``.redacted.json`` beside the log
maps each fingerprint that a cursor may hold to the new one. It is written first, and a file is replaced as a whole, so
a process that is killed leaves every file old or new, and every cursor valid.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kingdom.base.files import write_atomic, write_json
from kingdom.journal.cursor import HEAD_BYTES, HEADS_FILE, head_of_bytes, replaced_heads
from kingdom.journal.errors import unavailable
from kingdom.journal.logfiles import list_rotated

ChangeLine = Callable[[bytes], bytes]
"""Takes a line without its newline, and returns one that is not longer."""


def redact_log(path: Path, change: ChangeLine) -> int:
    """Change lines of a log, also in rotated files; return how many were changed.

    A shorter line is filled up with spaces, which JSON ignores. Nobody may write to the log meanwhile. Repeating an
    interrupted call completes it.
    """
    try:
        return sum(_redact_file(file, change) for file in log_files(path))
    except OSError as error:
        raise unavailable(error, "change", path) from error


def log_files(path: Path) -> list[Path]:
    """Return the files of a log, oldest first."""
    if not path.parent.is_dir():
        return []
    files = [path.with_name(rotated.name) for rotated in list_rotated(path)]
    return [*files, path] if path.is_file() else files


def _redact_file(file: Path, change: ChangeLine) -> int:
    before = file.read_bytes()
    lines, changed = [], 0
    for line in before.split(b"\n"):
        made = change(line) if line else line
        if len(made) > len(line) or b"\n" in made:
            made = b" " * len(line)
        made = made.ljust(len(line))
        changed += made != line
        lines.append(made)
    after = b"\n".join(lines)
    if not changed:
        return 0
    heads = {
        head_of_bytes(before[:length]): head_of_bytes(after[:length])
        for length in _head_lengths(before)
        if before[:length] != after[:length]
    }
    if heads:
        write_json(file.with_name(HEADS_FILE), {"heads": {**replaced_heads(file.parent), **heads}})
    info = file.stat()
    write_atomic(file, after, mode=info.st_mode & 0o777)
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))  # retention goes by the time of the last line
    return changed


def _head_lengths(data: bytes) -> Iterator[int]:
    """Yield the numbers of bytes of which a cursor may hold the fingerprint: of whole lines, up to the limit."""
    end = 0
    while (end := data.find(b"\n", end, HEAD_BYTES) + 1) > 0:
        yield end
    if len(data) >= HEAD_BYTES:
        yield HEAD_BYTES
