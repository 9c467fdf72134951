"""Read the journal: every line once and in order, across rotation, restarts and unfinished lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self

from kingdom.base import inotify
from kingdom.base.inotify import FileChange, FileWatcher
from kingdom.journal import cursor as cursors
from kingdom.journal.cursor import Cursor
from kingdom.journal.errors import InvalidLine, Problem, unavailable
from kingdom.journal.lines import Entry, entry_of, parse
from kingdom.journal.logfiles import LogFile, LogSequence

# Waiting until somebody writes to a log, or rotates it.


@asynccontextmanager
async def watch_log(path: Path, poll: float) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Give a function that waits for the next change of the log, ``poll`` seconds at most.

    A change that happens between two calls is not missed: it lets the next call return at once.
    """
    changed = asyncio.Event()

    def heard(changes: list[FileChange]) -> None:
        # Other logs lie in the same directory; a closed file of ours begins with the log's stem.
        if any(not change.name or change.name.startswith(path.stem) for change in changes):
            changed.set()

    async def wait() -> None:
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with what it waits for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(poll):
                await changed.wait()
        changed.clear()

    watch = FileWatcher(asyncio.get_running_loop())
    try:
        try:
            watch.add(path.parent, inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO, heard)
        except OSError as error:
            raise unavailable(error, "watch", path.parent) from error
        yield wait
    finally:
        watch.close()


# Reading the journal: every line once and in order, across rotation, restarts and lines that are not whole yet.
#
# Why no line is lost. A closed file stays in hand until its lock was free once after it lost its name: from then on
# nobody writes to it (:mod:`kingdom.journal.writer`). The files after it are found by their names, whose order is that
# of their closing (:mod:`kingdom.journal.logfiles`).
#
# Why the order holds. The sizes are taken newest file first, then the files are read oldest first, each up to its size.
# What a writer put into a newer file before we looked there, it put there after everything it had put into an older one;
# so we find the older lines when we look at the older file, which is later.
#
# Why none is repeated. The cursor moves with each line that is handed out; :meth:`Reader.commit` keeps it in a file, or
# :attr:`Reader.cursor` gives it to be kept elsewhere, together with what was made of the lines.


log = logging.getLogger("kingdom.journal")

_BREATH: Final = 500  # entries between two moments at which other coroutines may run


def log_problem(problem: Problem) -> None:
    """Report a problem as a warning."""
    log.warning("journal: %s", problem)


class Reader:
    """Reads one log from where it was left.

    ``cursor_path`` is where :meth:`commit` keeps the place; or give the ``cursor`` and keep it yourself. Without either
    the reading begins at ``start``: the oldest line there is, or behind the newest. What cannot be taken is passed to
    ``report`` and skipped. ``sync=False`` commits without waiting for the disk: a power cut may then repeat lines.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cursor_path: str | os.PathLike[str] | None = None,
        *,
        cursor: Cursor | None = None,
        start: Literal["oldest", "newest"] = "oldest",
        report: Callable[[Problem], None] = log_problem,
        sync: bool = True,
    ) -> None:
        self._path = Path(path)
        self._cursor_path = None if cursor_path is None else Path(cursor_path)
        self._report = report
        self._sync = sync
        self._chain = LogSequence(self._path, report)
        if cursor is None and self._cursor_path is not None:
            cursor = cursors.load_cursor(self._cursor_path)
        with self._faults():
            if cursor is not None:
                self._chain.resume(cursor)
            elif start == "newest":
                self._chain.skip_to_end()

    @property
    def cursor(self) -> Cursor:
        """The place behind the last line that was handed out."""
        return self._chain.cursor

    def read(self) -> Iterator[Entry]:
        """The events from here to the end of what is there now."""
        for file, block in self._blocks():
            documents = _decode(block)
            lines = block.split(b"\n")[:-1]
            for number, line in enumerate(lines):
                at, file.offset = file.offset, file.offset + len(line) + 1
                try:
                    entry = parse(line) if documents is None else entry_of(documents[number])
                except InvalidLine as error:
                    self._refuse(file, at, line, error)
                else:
                    yield entry

    def read_lines(self) -> Iterator[bytes]:
        """The lines as they are, without their newlines, whatever stands in them."""
        for file, block in self._blocks():
            for line in block.split(b"\n")[:-1]:
                file.offset += len(line) + 1
                yield line

    def read_records(self) -> Iterator[list[dict[str, Any]]]:
        """The lines as plain dictionaries, some hundreds at a time: the fast way, for counting.

        Only what is a JSON object is looked at: no field is checked. The place moves with each list.
        """
        for block in self.read_blocks():
            yield block.records()

    def read_blocks(self) -> Iterator[LineBlock]:
        """The lines as they are, some hundreds at a time, for whoever has a faster way to look at them than JSON.

        The place moves with each block.
        """
        for file, raw in self._blocks():
            at, file.offset = file.offset, file.offset + len(raw)
            yield LineBlock(raw, partial(self._one_by_one, file), at)

    async def follow(self, *, poll: float = 1.0) -> AsyncIterator[Entry]:
        """The events from here on, for ever: those that are there, then each as it is written.

        The kernel says when there is more; where it cannot, the file is looked at every ``poll`` seconds.
        """
        async with watch_log(self._path, poll) as wait:
            while True:
                for number, entry in enumerate(self.read(), 1):
                    yield entry
                    if number % _BREATH == 0:
                        await asyncio.sleep(0)
                await wait()

    def commit(self) -> None:
        """Remember that everything handed out so far was dealt with."""
        if self._cursor_path is None:
            raise ValueError("commit() needs a cursor_path; without one keep reader.cursor yourself")
        with self._faults():
            if self._sync:
                for file in self._chain.files:
                    file.sync()
            place = self._chain.cursor
        cursors.save_cursor(self._cursor_path, place, sync=self._sync)

    def close(self) -> None:
        """Close the files. Nothing is committed by it."""
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _blocks(self) -> Iterator[tuple[LogFile, bytes]]:
        """Whole lines, block by block; the caller moves the file's offset before it goes on."""
        more = True
        while more:
            with self._faults():
                more = self._chain.extend()
                todo = self._sizes()
            for file, size in todo:
                while file.offset < size:
                    with self._faults():
                        block = file.block(size)
                        length = None if block else file.pass_overlong(size)
                    if block:
                        yield file, block
                    elif length is not None:
                        self._say("too-long", file, file.offset - length - 1, f"a line of {length:,} bytes was skipped")
                    else:
                        self._pass_torn(file, size)
                        break
            self._chain.drop_finished()

    def _sizes(self) -> list[tuple[LogFile, int]]:
        """Every file in hand with its size, oldest first; the sizes were taken newest first."""
        found = []
        for file in reversed(self._chain.files):
            if file is not self._chain.files[-1]:
                file.seal()
            size = file.size()
            if size < file.offset:
                self._say("shrunk", file, file.offset, f"the file has {size:,} bytes only; reading it from its start")
                file.restart()
            found.append((file, size))
        return found[::-1]

    def _pass_torn(self, file: LogFile, size: int) -> None:
        """The end of a file is not a whole line: wait for the rest, unless there cannot be any."""
        if file.sealed:
            self._say("torn", file, file.offset, f"the last {size - file.offset:,} bytes have no end; skipped")
            file.offset = size

    def _one_by_one(self, file: LogFile, at: int, block: bytes) -> list[dict[str, Any]]:
        documents = []
        for line in block.split(b"\n")[:-1]:
            try:
                document = json.loads(line)
                if not isinstance(document, dict):
                    raise InvalidLine(f"an event is a JSON object, not {type(document).__name__}")
            except (ValueError, RecursionError) as error:
                self._refuse(file, at, line, error)
            else:
                documents.append(document)
            at += len(line) + 1
        return documents

    def _refuse(self, file: LogFile, at: int, line: bytes, error: Exception) -> None:
        if line.strip():  # an empty line is nobody's event
            self._say("not-event", file, at, f"{error}; skipped {line[:80]!r}")

    def _say(self, kind: Any, file: LogFile, offset: int, detail: str) -> None:
        self._report(Problem(kind, file.path, offset, detail))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unavailable(error, "read", self._path) from error


class LineBlock:
    """Some whole lines of a log."""

    __slots__ = ("_at", "_one_by_one", "_passed", "raw")

    def __init__(self, raw: bytes, one_by_one: Callable[[int, bytes], list[dict[str, Any]]], at: int) -> None:
        self.raw = raw
        self._one_by_one = one_by_one  # reports what cannot be taken
        self._at = at
        self._passed = 0  # where the last line that was reported ends

    def records(self) -> list[dict[str, Any]]:
        """The lines as dictionaries. What is none is reported, and left out."""
        documents = _decode(self.raw)
        return self._one_by_one(self._at, self.raw) if documents is None else documents

    def record(self, line: str) -> list[dict[str, Any]]:
        """One of the lines in the same way. Those that may be none are asked for in their order."""
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            return [document]
        wanted, start = line.encode() + b"\n", self._passed
        if not self.raw.startswith(wanted, start):
            start = self.raw.index(b"\n" + wanted, start) + 1
        self._passed = start + len(wanted)
        return self._one_by_one(self._at + start, wanted)


def _decode(block: bytes) -> list[dict[str, Any]] | None:
    """Decode lines all at once, as one JSON array: twice as fast as one by one. None: one of them is bad."""
    try:
        text = block[:-1].decode()
        documents = json.loads(f"[{text.replace(chr(10), ',')}]")
    except (ValueError, RecursionError):
        return None
    # Two bad lines might make a good one together, but then there is one too few.
    if len(documents) != text.count("\n") + 1 or set(map(type, documents)) != {dict}:
        return None
    return documents  # type: ignore[no-any-return]
