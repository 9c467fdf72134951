"""Search the journal, from its newest line backwards, also in rotated files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.court.activity import journal_files, parse_or_none
from kingdom.journal.lines import MAX_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kingdom.journal import Entry

MAX_SEARCHED_BYTES: Final = 32 * 1024**2
"""How much one call reads. A rare word in a long journal is found by several."""
_BLOCK_BYTES: Final = 256 * 1024
_LINES_PER_CHECK: Final = 100  # after so many lines, the time of one tells whether the rest is too old
_DISORDER_SECONDS: Final = 60.0  # lines of several processes are not strictly in the order of their times


@dataclass(frozen=True, slots=True)
class JournalFilter:
    """Which lines are wanted; what is empty matches all."""

    types: Sequence[str] = ()
    """Types, or patterns such as ``task.*``."""
    actors: Sequence[str] = ()
    task: str | None = None
    text: str = ""
    """All of these words must occur in the line; case is ignored. An id is such a word."""
    since: float | None = None
    until: float | None = None

    def matches(self, entry: Entry) -> bool:
        """Return whether an entry is wanted. Its words are not checked."""
        if self.types and not any(fnmatchcase(entry.type, pattern) for pattern in self.types):
            return False
        if self.actors and entry.actor not in self.actors:
            return False
        if self.task is not None and self.task not in (
            entry.fields.get("task_id"),
            entry.fields.get("original_task_id"),
        ):
            return False
        at = entry.at.timestamp()
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


class JournalPosition(NamedTuple):
    """A place in the journal: a file by its inode, which a rotation keeps, and the bytes before it."""

    inode: int
    offset: int


@dataclass(slots=True)
class JournalMatches:
    """Lines that were found, newest first."""

    entries: list[Entry] = field(default_factory=list)
    following: JournalPosition | None = None
    """Where the search goes on; None: everything is searched."""


def search_journal(
    path: Path, wanted: JournalFilter, limit: int, before: JournalPosition | None = None
) -> JournalMatches:
    """Return up to ``limit`` lines before a position, the newest first.

    There may be fewer, and a position to go on: one call reads 32 MiB at most.
    """
    found = JournalMatches()
    words = wanted.text.casefold().split()
    read, unchecked = 0, _LINES_PER_CHECK
    for position, line in _lines_before(path, before):
        read += len(line) + 1
        entry = parse_or_none(line) if _has_words(line, words) else None
        if entry is not None and wanted.matches(entry):
            found.entries.append(entry)
        if len(found.entries) == limit or read >= MAX_SEARCHED_BYTES:
            found.following = position
            break
        unchecked += 1
        if wanted.since is None or unchecked <= _LINES_PER_CHECK:
            continue
        if (timed := entry or parse_or_none(line)) is not None:
            unchecked = 0
            if timed.at.timestamp() < wanted.since - _DISORDER_SECONDS:
                break
    return found


def _lines_before(path: Path, before: JournalPosition | None) -> Iterator[tuple[JournalPosition, bytes]]:
    """Yield the lines before a position (None: all), the newest first, each with its own position."""
    for file in journal_files(path):
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # removed this instant
            continue
        try:
            info = os.fstat(descriptor)
            if before is not None and info.st_ino != before.inode:
                continue
            end = info.st_size if before is None else min(before.offset, info.st_size)
            before = None
            for offset, line in _backwards(descriptor, end):
                yield JournalPosition(info.st_ino, offset), line
        finally:
            os.close(descriptor)


def _backwards(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines before ``end`` with their offsets, the last first. An unfinished last line is left out."""
    rest, complete = b"", False
    while end > 0:
        start = max(end - _BLOCK_BYTES, 0)
        block = os.pread(descriptor, end - start, start) + rest
        lines = block.split(b"\n")
        offset = start + len(block)
        for line in reversed(lines[1:] if start else lines):
            offset -= len(line)
            if complete and line:
                yield offset, line
            complete = True  # what follows the last newline is not a whole line
            offset -= 1
        rest, end = lines[0] if start else b"", start
        if len(rest) > MAX_LINE_BYTES:
            rest = b""


def _has_words(line: bytes, words: Sequence[str]) -> bool:
    if not words:
        return True
    text = line.decode(errors="replace").casefold()
    return all(word in text for word in words)
