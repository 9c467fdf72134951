"""Read the journal: every line once and in order, across rotation, restarts and unfinished lines.

No line is lost. A rotated file stays open until its lock was free once after the rename: from then on nobody writes to
it (:mod:`kingdom.journal.writer`). Later files are found by their names, which sort in the order of rotation
(:mod:`kingdom.journal.logfiles`).

The order is kept. Sizes are taken newest file first, then the files are read oldest first, each up to its size. What a
writer put into a newer file before we took its size, it wrote after everything it put into an older file; so we find
the older lines when we take the size of the older file, which is later.

No line is repeated. The cursor moves with each line that is returned. :meth:`Reader.commit` saves it in a file;
:attr:`Reader.cursor` returns it, to be saved elsewhere together with what the caller made of the lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Self

from kingdom.base import inotify
from kingdom.base.inotify import FileChange, FileWatcher
from kingdom.journal.cursor import Cursor, load_cursor, save_cursor
from kingdom.journal.errors import InvalidLine, Problem, unavailable
from kingdom.journal.lines import Entry, entry_of, parse
from kingdom.journal.logfiles import LogFile, LogSequence

try:
    import orjson
except ModuleNotFoundError:  # only the extra court brings it
    _loads_fast: Callable[[bytes], Any] = json.loads
else:
    _loads_fast = orjson.loads

log = logging.getLogger("kingdom.journal")

_YIELD_EVERY: Final = 500  # entries, after which other coroutines may run


@asynccontextmanager
async def watch_log(path: Path, poll: float) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Return a function that waits for the next change of the log, ``poll`` seconds at most.

    A change between two calls is not missed: the next call returns at once.
    """
    changed = asyncio.Event()

    def on_changes(changes: list[FileChange]) -> None:
        # The directory has other logs too; rotated files of this one begin with its stem.
        if any(not change.name or change.name.startswith(path.stem) for change in changes):
            changed.set()

    async def wait() -> None:
        # Not wait_for: in Python 3.11 it swallows a cancellation that arrives together with the awaited event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(poll):
                await changed.wait()
        changed.clear()

    watch = FileWatcher(asyncio.get_running_loop())
    try:
        try:
            watch.add(path.parent, inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO, on_changes)
        except OSError as error:
            raise unavailable(error, "watch", path.parent) from error
        yield wait
    finally:
        watch.close()


def log_problem(problem: Problem) -> None:
    """Log a problem as a warning."""
    log.warning("journal: %s", problem)


class Reader:
    """Reads one log from a cursor on.

    ``cursor_path`` is the file in which :meth:`commit` saves the cursor; or pass a ``cursor`` and save it yourself.
    Without either, reading starts where ``start`` says: at the oldest line, after the newest, or at a time in seconds
    since the epoch (some lines before it may be read, too). Lines that are not events are passed to ``report`` and
    skipped. ``sync=False`` commits without syncing: after a power cut lines may be repeated.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cursor_path: str | os.PathLike[str] | None = None,
        *,
        cursor: Cursor | None = None,
        start: Literal["oldest", "newest"] | float = "oldest",
        report: Callable[[Problem], None] = log_problem,
        sync: bool = True,
    ) -> None:
        self._path = Path(path)
        self._cursor_path = None if cursor_path is None else Path(cursor_path)
        self._report = report
        self._sync = sync
        self._files = LogSequence(self._path, report)
        if cursor is None and self._cursor_path is not None:
            cursor = load_cursor(self._cursor_path)
        with self._wrap_errors():
            if cursor is not None:
                self._files.resume(cursor)
            elif start == "newest":
                self._files.skip_to_end()
            elif not isinstance(start, str):
                self._files.skip_before(start)

    @property
    def cursor(self) -> Cursor:
        """The position after the last line that was returned."""
        return self._files.cursor

    def read(self) -> Iterator[Entry]:
        """Yield the events up to the current end of the log."""
        for file, block in self._blocks():
            documents = _decode(block, json.loads)
            lines = block.split(b"\n")[:-1]
            for number, line in enumerate(lines):
                at, file.offset = file.offset, file.offset + len(line) + 1
                try:
                    entry = parse(line) if documents is None else entry_of(documents[number])
                except InvalidLine as error:
                    self._report_line(file, at, line, error)
                else:
                    yield entry

    def read_lines(self) -> Iterator[bytes]:
        """Yield the lines unparsed, without their newlines."""
        for file, block in self._blocks():
            for line in block.split(b"\n")[:-1]:
                file.offset += len(line) + 1
                yield line

    def read_records(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the lines as plain dictionaries, some hundreds at a time. The cursor moves with each list.

        Faster than :meth:`read`, for counting: it checks only that a line is a JSON object, and a whole number of more
        than 64 bits may become a float.
        """
        for file, block in self._blocks():
            start, file.offset = file.offset, file.offset + len(block)
            documents = _decode(block, _loads_fast)
            yield self._decode_lines(file, start, block) if documents is None else documents

    async def follow(self, *, poll: float = 1.0) -> AsyncIterator[Entry]:
        """Yield the events up to the end of the log, then each new one as it is written. Never ends.

        Where the kernel reports no changes, the log is polled every ``poll`` seconds.
        """
        async with watch_log(self._path, poll) as wait:
            while True:
                for number, entry in enumerate(self.read(), 1):
                    yield entry
                    if number % _YIELD_EVERY == 0:
                        await asyncio.sleep(0)
                await wait()

    def commit(self) -> None:
        """Save the cursor: everything returned so far has been processed."""
        if self._cursor_path is None:
            raise ValueError("commit() needs a cursor_path; without one, save reader.cursor yourself")
        with self._wrap_errors():
            if self._sync:
                for file in self._files.files:
                    file.sync()
            position = self._files.cursor
        save_cursor(self._cursor_path, position, sync=self._sync)

    def close(self) -> None:
        """Close the files, without committing."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _blocks(self) -> Iterator[tuple[LogFile, bytes]]:
        """Yield blocks of whole lines. The caller moves the file's offset before it asks for the next block."""
        more = True
        while more:
            with self._wrap_errors():
                more = self._files.extend()
                todo = self._sizes()
            for file, size in todo:
                while file.offset < size:
                    with self._wrap_errors():
                        block = file.block(size)
                        length = None if block else file.skip_overlong(size)
                    if block:
                        yield file, block
                    elif length is not None:
                        self._report_problem(
                            "too-long", file, file.offset - length - 1, f"a line of {length:,} bytes was skipped"
                        )
                    else:
                        self._pass_torn(file, size)
                        break
            self._files.drop_finished()

    def _sizes(self) -> list[tuple[LogFile, int]]:
        """Return every open file with its size, oldest first; the sizes are taken newest first."""
        found = []
        for file in reversed(self._files.files):
            if file is not self._files.files[-1]:
                file.seal()
            size = file.size()
            if size < file.offset:
                self._report_problem(
                    "shrunk", file, file.offset, f"the file has {size:,} bytes only; reading it from its start"
                )
                file.restart()
            found.append((file, size))
        return found[::-1]

    def _pass_torn(self, file: LogFile, size: int) -> None:
        """Skip an unfinished last line if nobody can finish it any more."""
        if file.sealed:
            self._report_problem(
                "torn", file, file.offset, f"the last {size - file.offset:,} bytes have no end; skipped"
            )
            file.offset = size

    def _decode_lines(self, file: LogFile, at: int, block: bytes) -> list[dict[str, Any]]:
        documents = []
        for line in block.split(b"\n")[:-1]:
            try:
                document = json.loads(line)
                if not isinstance(document, dict):
                    raise InvalidLine(f"an event is a JSON object, not {type(document).__name__}")
            except (ValueError, RecursionError) as error:
                self._report_line(file, at, line, error)
            else:
                documents.append(document)
            at += len(line) + 1
        return documents

    def _report_line(self, file: LogFile, at: int, line: bytes, error: Exception) -> None:
        if line.strip():  # an empty line is no problem
            self._report_problem("not-event", file, at, f"{error}; skipped {line[:80]!r}")

    def _report_problem(self, kind: Any, file: LogFile, offset: int, detail: str) -> None:
        self._report(Problem(kind, file.path, offset, detail))

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unavailable(error, "read", self._path) from error


def _decode(block: bytes, loads: Callable[[bytes], Any]) -> list[dict[str, Any]] | None:
    """Decode lines together, as one JSON array: twice as fast as one by one. None when one of them is no object."""
    try:
        documents = loads(b"[%b]" % block[:-1].replace(b"\n", b","))
    except (ValueError, RecursionError):
        return None
    # Two bad lines might decode as one object, but then the number of objects is too small.
    if len(documents) != block.count(b"\n") or set(map(type, documents)) != {dict}:
        return None
    return documents  # type: ignore[no-any-return]
