"""The ledger: an append-only file of JSON lines, one for each operation on a stream.

It is written and read under the stream's lock only, so a reader with the lock has seen everything. A line that a dying
process left half-written has no newline: it does not count, and the next process removes it.

A ledger that has grown is replaced by a new file that begins with a snapshot. The first line holds the generation of
the file and where its snapshot ends: a process that had read the previous generation to its end skips the snapshot.

A line changes the state of the stream and requires renames. The same functions serve the process that acts, the
processes that read the line, and the process that finishes the renames of one that died.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kingdom.base.files import temporary_prefix, write_all
from kingdom.base.jsontext import encode
from kingdom.bus.envelope import PRIORITIES
from kingdom.bus.stream_entry import aggregate_key, entry_from_row, entry_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kingdom.bus.delivery import Status
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.stream_state import StreamStateMachine


LedgerLine = dict[str, Any]

_HEADER_BYTES: Final = 96
_CHUNK: Final = 1 << 20

log = logging.getLogger("kingdom.bus.files")


class StreamLedger:
    """The ledger as one process sees it: everything up to ``offset`` has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.inode = 0
        self._fd: int | None = None
        self.vanished = False  # the file was deleted and must be replaced
        self._generation = 0
        self._snapshot_end = 0

    def close(self) -> None:
        """Close the file. The next :meth:`read` starts from the beginning."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def size_on_disk(self) -> int:
        """Return the size of the file; it differs from ``offset`` once another process has written. Needs no lock."""
        return 0 if self._fd is None else os.fstat(self._fd).st_size

    def read(self) -> tuple[bool, list[LedgerLine]]:
        """Read what was written since the last call: whether to reset the state, and the lines to apply."""
        lines: list[LedgerLine] = []
        continued = self._fd is not None and self.size_on_disk() >= self.offset  # shorter: it was edited by hand
        if continued:
            lines = self._rest()
            self.vanished = not os.path.exists(self.path)
            if self.vanished or os.stat(self.path).st_ino == self.inode:
                return False, lines
        generation = self._generation
        self._open()
        if continued and self._generation == generation + 1:
            self.offset = self._snapshot_end
            return False, lines + self._rest()
        self.offset = 0
        return True, self._rest()

    def append(self, line: LedgerLine) -> int:
        """Append one line, all or nothing; return its offset."""
        assert self._fd is not None
        start = self.offset
        data = encode(line).encode("utf-8", "surrogatepass") + b"\n"
        try:
            write_all(self._fd, data)
        except OSError:
            self.rewind(start)
            raise
        self.offset += len(data)
        return start

    def rewind(self, start: int) -> None:
        """Remove everything from ``start`` on. No process has read it: the lock is still held."""
        assert self._fd is not None
        os.ftruncate(self._fd, start)
        self.offset = start

    def sync(self) -> None:
        """Make the ledger durable. Needs no lock: if it is replaced now, the new one is durable already."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, lines: Iterable[LedgerLine]) -> None:
        """Start a new generation with a snapshot."""
        body = b"".join(encode(line).encode("utf-8", "surrogatepass") + b"\n" for line in lines)
        header = {"ledger": 1, "generation": self._generation + 1, "snapshotEnd": _HEADER_BYTES + len(body)}
        temporary = f"{os.path.dirname(self.path)}/{temporary_prefix()}ledger"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, encode(header).encode().ljust(_HEADER_BYTES - 1) + b"\n" + body)
            os.fsync(fd)
            if self._fd is not None:
                # Wakes processes that watch the old file: they take the lock next, and find the new file.
                with contextlib.suppress(OSError):
                    os.write(self._fd, b'{"op":"replaced"}\n')
            os.rename(temporary, self.path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.close()
        self.vanished = False
        self._fd, self.inode = fd, os.fstat(fd).st_ino
        self._generation += 1
        self.offset = self._snapshot_end = _HEADER_BYTES + len(body)

    def _open(self) -> None:
        self.close()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self.inode = os.fstat(self._fd).st_ino
        self._generation, self._snapshot_end = 0, 0
        first = os.pread(self._fd, _HEADER_BYTES, 0)
        if first.startswith(b'{"ledger"') and (header := _parse(first)):
            self._generation, self._snapshot_end = int(header["generation"]), int(header["snapshotEnd"])

    def _rest(self) -> list[LedgerLine]:
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        if size == self.offset:
            return []
        data = b"".join(self._read_to(size))
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._fd, self.offset + whole)
        self.offset += whole
        parsed = (_parse(text) for text in data[:whole].split(b"\n") if text)
        return [line for line in parsed if line is not None]

    def _read_to(self, size: int) -> Iterable[bytes]:
        assert self._fd is not None
        at = self.offset
        while at < size:
            part = os.pread(self._fd, min(_CHUNK, size - at), at)
            if not part:
                raise OSError(errno.EIO, "the ledger became shorter while it was read", self.path)
            at += len(part)
            yield part


def _parse(text: bytes) -> LedgerLine | None:
    """Parse one line; None if it is garbled. The directories then show what happened."""
    try:
        line = json.loads(text)
    except ValueError:
        log.warning("skipping a garbled line of a ledger: %r", text[:80])
        return None
    return line if isinstance(line, dict) else None


_SNAPSHOT_ROWS: Final = 1000  # entries per line of a snapshot


class FileMove(NamedTuple):
    """A file that moves to another directory. ``source`` may be a temporary name; target ``GONE`` means unlink."""

    event_id: str
    source: Status | str
    target: Status | Literal["GONE"]
    at: float = 0.0
    attempts: int = 0
    error_code: str | None = None
    error_message: str | None = None
    outcome: str | None = None  # of a DONE document


def apply_line(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    """Apply a line to the state; return the moves that it requires. Unknown lines have no effect."""
    meaning = _MEANINGS.get(line.get("op", ""))
    return [] if meaning is None else meaning(state, line)


def makes_claimable(line: LedgerLine, ordered: bool) -> bool:
    """Return whether the line may have made an event claimable."""
    op = line.get("op")
    if op == "settle":
        return ordered or "retry" in line
    return op in ("publish", "release", "requeue", "set", "options") or (ordered and op in ("purge", "forget"))


def new_entry_row(envelope: Envelope, seq: int, now: float) -> list[Any]:
    """Return the row of an event that is published now: the short form of :func:`entry_row`."""
    return [
        envelope.event_id,
        envelope.type,
        aggregate_key(envelope),
        PRIORITIES.index(envelope.priority),
        seq,
        now,
        now if envelope.not_before is None else max(now, envelope.not_before.timestamp()),
    ]


def snapshot(state: StreamStateMachine) -> Iterator[LedgerLine]:
    """Yield lines that turn an empty state into this one. DEAD events come last, in the order they died."""
    entries = [entry for entry in state if entry.status != "DEAD"] + state.dead()[::-1]
    for start in range(0, len(entries), _SNAPSHOT_ROWS):
        yield {"op": "set", "entries": [entry_row(entry) for entry in entries[start : start + _SNAPSHOT_ROWS]]}


def _publish(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    moves = []
    for fields in line["entries"]:
        if fields[0] not in state:
            state.add(entry_from_row(fields))
            moves.append(FileMove(fields[0], line["tmp"] + fields[0], "PENDING"))
    return moves


def _claim(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    token, worker, until = line["token"], sys.intern(line["worker"]), line["until"]
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(FileMove(event_id, entry.status, "PROCESSING"))
            state.hold(entry, token, worker, until)
    return moves


def _settle(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    at, moves = line["at"], []
    outcomes = line.get("outcomes", {})
    for event_id in line.get("done", ()):
        if entry := state.get(event_id):
            facts = entry.attempts, entry.error_code, entry.error_message
            moves.append(FileMove(event_id, entry.status, "DONE", at, *facts, outcomes.get(event_id)))
            state.remove(entry)
    for event_id, ready_at, code, message in line.get("retry", ()):
        if entry := state.get(event_id):
            moves.append(FileMove(event_id, entry.status, "PENDING"))
            state.retry(entry, ready_at, code, message)
    for event_id, code, message in line.get("dead", ()):
        if entry := state.get(event_id):
            moves.append(FileMove(event_id, entry.status, "DEAD", at, entry.attempts, code, message))
            state.bury(entry, code, message, at)
    return moves


def _extend(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            state.extend(entry, line["until"])
    return []


def _recall(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            state.recall(entry, line["token"], line["until"])
    return []


def _release(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(FileMove(event_id, entry.status, "PENDING"))
            state.release(entry)
    return moves


def _requeue(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(FileMove(event_id, entry.status, "PENDING"))
            state.requeue(entry, line["at"])
    for fields in line["entries"]:  # those that were DONE
        if fields[0] not in state:
            state.add(entry_from_row(fields))
            moves.append(FileMove(fields[0], "DONE", "PENDING"))
    return moves


def _purge(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(FileMove(event_id, entry.status, "GONE"))
            state.remove(entry)
    return moves


def _forget(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    _purge(state, line)
    return []


def _set(state: StreamStateMachine, line: LedgerLine) -> list[FileMove]:
    for fields in line["entries"]:
        if entry := state.get(fields[0]):
            state.remove(entry)
        state.add(entry_from_row(fields))
    return []


_MEANINGS: Final[dict[str, Callable[[StreamStateMachine, LedgerLine], list[FileMove]]]] = {
    "publish": _publish,
    "claim": _claim,
    "settle": _settle,
    "extend": _extend,
    "recall": _recall,
    "release": _release,
    "requeue": _requeue,
    "purge": _purge,
    "forget": _forget,
    "set": _set,
}
