"""Move files between the state directories, and find files that were moved by hand.

A rename cannot change the contents of a file. A document whose ``status`` field must agree with its directory is
therefore rewritten: all new files of a line are made durable under temporary names, then renamed into place, then the
old ones are removed. In between there are two copies, and each agrees with its directory.

Files may be put into ``pending/`` by hand, moved from ``dead/`` to ``pending/``, or deleted; after a power cut the
ledger may lack its last lines. In each case the directories are right, and the scanner writes what it finds into the
ledger, so that all processes agree. It lists names only, and reads only unknown files.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.base.files import remove_abandoned, temporary_prefix
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.stream_entry import entry_from_row, entry_row
from kingdom.bus.transports.files.document import encode_form, mark, parse, read_bytes, read_document, unmark
from kingdom.bus.transports.files.layout import ACTIVE, REASON, SUFFIX
from kingdom.bus.transports.files.ledger import FileMove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.base.syncer import Syncer
    from kingdom.bus.delivery import DocumentForm, Status
    from kingdom.bus.stream_entry import EventEntry
    from kingdom.bus.transports.files.layout import StreamPaths
    from kingdom.bus.transports.files.stream import FileStream


INVALID_REASON: Final = "invalid_reason"  # a field of documents in invalid/, beside their .reason file


class _Rewrite(NamedTuple):
    """A document to rewrite: its file, the temporary file, and the target."""

    move: FileMove
    source: str
    temporary: str
    target: str
    data: bytes


class FileMover:
    """Moves the files of one stream. Used under the stream's lock only."""

    def __init__(self, paths: StreamPaths, syncer: Syncer) -> None:
        self._paths = paths
        self._syncer = syncer

    def carry_out(self, moves: Sequence[FileMove]) -> list[FileMove]:
        """Do all moves, or none and raise ``OSError``; return the moves whose file does not exist.

        May be repeated: what is done already stays unchanged.
        """
        if self._paths.form is None:
            return self._rename_all(moves)
        rewritten = [move for move in moves if self._says_another_status(move)]
        missing = self._rewrite_all(rewritten)
        again = set(map(id, rewritten))
        return missing + self._rename_all([move for move in moves if id(move) not in again])

    def restate(self, path: str, status: Status) -> None:
        """Set the status field of a document to the state of its directory."""
        form, word = self._paths.form, self._paths.word(status)
        if form is None or form.status is None or word is None:
            return
        document = parse(read_bytes(path))
        if document.pop(INVALID_REASON, None) is not None or document.get(form.status) != word:
            temporary = f"{self._paths.home}{temporary_prefix()}{os.path.basename(path)}"
            self._syncer.write(self._paths.home, [(temporary, encode_form(document, (form.status, word)))])
            os.rename(temporary, path)

    # ── renames ───────────────────────────────────────────────────────────────────────────────────────────────

    def _rename_all(self, moves: Sequence[FileMove]) -> list[FileMove]:
        moved: list[FileMove] = []
        missing: list[FileMove] = []
        try:
            for move in moves:
                (moved if self._rename(move) else missing).append(move)
        except OSError:
            for move in reversed(moved):
                source, target = self._source(move), self._target(move)
                if target is not None and source != target:
                    os.rename(target, source)
            raise
        return missing

    def _rename(self, move: FileMove) -> bool:
        source, target = self._source(move), self._target(move)
        if source == target:
            return True
        try:
            if target is None:
                os.unlink(source)
                return True
            if move.target == "DONE":
                mark(source, move.at, move.attempts, move.error_code, move.error_message)
            elif move.source == "DONE":
                unmark(source)
            self._give_reason(move, target)
            os.rename(source, target)
        except FileNotFoundError:
            return self._seek(move)
        self._drop_reason(move, source)
        return True

    def _seek(self, move: FileMove) -> bool:
        """Find a file that is not at its source, and move it; return False if it does not exist."""
        self._paths.make()
        target = self._target(move)
        if target is None:
            return True
        if os.path.exists(target):
            return True
        for path in self._places(move):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, target)
                return True
        return False

    # ── rewritten documents ──────────────────────────────────────────────────────────────────────────────────

    def _says_another_status(self, move: FileMove) -> bool:
        if move.target == "GONE" or move.source not in self._paths.states:
            return False  # removed, or published with its status
        word = self._paths.word(move.target, move.outcome)
        return word is not None and self._source(move) != self._target(move)

    def _rewrite_all(self, moves: Sequence[FileMove]) -> list[FileMove]:
        prefix, missing = temporary_prefix(), []
        rewrites: list[_Rewrite] = []
        for move in moves:
            rewrite = self._plan(move, prefix)
            if rewrite is not None:
                rewrites.append(rewrite)
            elif not os.path.exists(self._paths.file(_status(move), move.event_id)):
                missing.append(move)
        placed: list[_Rewrite] = []
        try:
            if rewrites:
                self._syncer.write(self._paths.home, [(item.temporary, item.data) for item in rewrites])
            for item in rewrites:
                if item.move.target == "DONE":
                    facts = item.move
                    mark(item.temporary, facts.at, facts.attempts, facts.error_code, facts.error_message)
                self._give_reason(item.move, item.target)
                os.rename(item.temporary, item.target)
                placed.append(item)
        except OSError:
            for item in rewrites:
                with contextlib.suppress(OSError):
                    os.unlink(item.target if item in placed else item.temporary)
            raise
        for item in rewrites:
            if item.source != item.target:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(item.source)
            self._drop_reason(item.move, item.source)
        return missing

    def _plan(self, move: FileMove, prefix: str) -> _Rewrite | None:
        """Plan the new file of a document; None if there is no old one."""
        form = self._paths.form
        word = self._paths.word(_status(move), move.outcome)
        assert form is not None
        assert form.status is not None
        assert word is not None
        target = self._paths.file(_status(move), move.event_id)
        for path in self._places(move):
            if path == target:
                continue
            try:
                data = read_bytes(path)
            except FileNotFoundError:
                continue
            except InvalidEnvelope:
                data = b""
            with contextlib.suppress(InvalidEnvelope):  # the next reader sets it aside
                document = parse(data)
                document.pop(INVALID_REASON, None)
                if self._is_invalid(move):
                    document[INVALID_REASON] = _reason(move)
                data = encode_form(document, (form.status, word))
            return _Rewrite(move, path, f"{self._paths.home}{prefix}{move.event_id}{SUFFIX}", target, data)
        return None

    # ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _source(self, move: FileMove) -> str:
        if move.source in self._paths.states:
            return self._paths.file(move.source, move.event_id)
        return f"{self._paths.home}{move.source}{SUFFIX}"

    def _target(self, move: FileMove) -> str | None:
        return None if move.target == "GONE" else self._paths.file(move.target, move.event_id)

    def _places(self, move: FileMove) -> list[str]:
        """Return where the file of a move may be: its source first, then every state."""
        elsewhere = (self._paths.file(status, move.event_id) for status in self._paths.states)
        return list(dict.fromkeys([self._source(move), *elsewhere]))

    def _give_reason(self, move: FileMove, target: str) -> None:
        """Write a .reason file for a DEAD event in ``invalid/``, as other files there have."""
        if self._is_invalid(move):
            with contextlib.suppress(OSError), open(f"{target}.reason", "w", encoding="utf-8") as file:
                file.write(f"{_reason(move)}\n")

    def _is_invalid(self, move: FileMove) -> bool:
        return move.target == "DEAD" and self._paths.states["DEAD"] == self._paths.invalid

    def _drop_reason(self, move: FileMove, source: str) -> None:
        if move.source == "DEAD" and self._paths.states["DEAD"] == self._paths.invalid:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{source}.reason")


def marked_invalid(path: str, form: DocumentForm | None, reason: str, max_bytes: int) -> bytes | None:
    """Return the document at ``path`` as one in ``invalid/``; None if it cannot be read, or has no status."""
    if form is None or form.status is None:
        return None
    try:
        document = parse(read_bytes(path, max_bytes))
    except (OSError, InvalidEnvelope):
        return None
    if form.status not in document:
        return None
    document[INVALID_REASON] = reason
    return encode_form(document, (form.status, "invalid"))


def _reason(move: FileMove) -> str:
    return move.error_message or move.error_code or "rejected"


def _status(move: FileMove) -> Status:
    assert move.target != "GONE"
    return move.target


INTERVAL: Final = 10.0  # seconds between scans of directories that change
GROWING: Final = 2.0  # seconds that an invalid file must be unchanged before it is set aside
_ROUTINE_SHARE: Final = 100  # routine scans take at most one part in this many of the time,
_CHANGED_SHARE: Final = 20  # scans after a certain change one in this many,
_CHEAP_SECONDS: Final = 0.02  # unless a scan takes less than this
_ROUTING_BYTES: Final = 4096  # by which a document may be longer than its envelope


class DirectoryScanner:
    """Compares the directories of one stream with its state. Used under the stream's lock only."""

    def __init__(self, stream: FileStream) -> None:
        self._stream = stream
        self._seen = b""  # the fingerprint of the directories at the last scan
        self._earliest = 0.0  # by the monotonic clock: no scan before this,
        self._latest = 0.0  # one after this if anything moved meanwhile,
        self._again = float("inf")  # and one after this in any case
        self._last = 0  # the last position in publish order that was assigned

    def look(self, note: bytes, *, urgent: bool, changed: bool) -> bool:
        """Scan if due: at once if ``urgent``, soon if the directories were ``changed`` from outside.

        Returns whether it did.
        """
        now = time.monotonic()
        if changed:
            self._again = min(self._again, self._earliest)
        if not urgent and now < self._again and (now < self._latest or note == self._seen):
            return False
        began = time.thread_time()
        self._scan()
        took = time.thread_time() - began
        self._earliest = now + (took * _CHANGED_SHARE if took > _CHEAP_SECONDS else 0.0)
        self._latest = now + max(INTERVAL, took * _ROUTINE_SHARE)
        self._seen = note
        return True

    @property
    def due(self) -> bool:
        """Whether the next holder of the lock scans. Needs no lock."""
        return self._again <= time.monotonic()

    def hurry(self) -> None:
        """Make the next holder of the lock scan. Needs no lock."""
        self._again = 0.0

    def _scan(self) -> None:
        self._again = float("inf")
        stream, paths, state = self._stream, self._stream.paths, self._stream.state
        remove_abandoned(paths.home)
        strangers: list[tuple[str, Status]] = []
        in_place = 0
        for path in paths.active:
            status = next(item for item in ACTIVE if paths.states[item] == path)
            names = os.listdir(path)
            explained = {name for name in names if name.endswith(REASON)} if path == paths.invalid else set()
            for name in names:
                if name.endswith(SUFFIX) and name[0] != ".":
                    known = state.get(name[: -len(SUFFIX)])
                    if known is not None and paths.states[known.status] == path:
                        in_place += 1
                    elif name + REASON not in explained:
                        strangers.append((name[: -len(SUFFIX)], status))
        some_missing = in_place < len(state)
        self._last = state.last_seq
        changed = [entry for item in sorted(strangers) if (entry := self._explain(*item))]
        if changed:
            stream.commit({"op": "set", "entries": [entry_row(entry) for entry in changed]})
        if some_missing:
            lost = [entry.event_id for entry in state if not os.path.lexists(paths.file(entry.status, entry.event_id))]
            if lost:
                stream.commit({"op": "forget", "ids": lost})

    def _explain(self, event_id: str, status: Status) -> EventEntry | None:
        """Return what the ledger should say about a file in an unexpected directory, if anything."""
        paths, known = self._stream.paths, self._stream.state.get(event_id)
        if known is None:
            return self._adopt(paths.file(status, event_id), event_id, status)
        if os.path.lexists(home := paths.file(known.status, event_id)):
            if paths.form is not None and self._same(home, paths.file(status, event_id)):
                os.unlink(paths.file(status, event_id))  # a power cut interrupted a change of status
                return None
            self._stream.set_aside(paths.file(status, event_id), f"a copy: event {event_id} lies in {home}")
            return None
        return self._moved(known, status)

    def _adopt(self, path: str, event_id: str, status: Status) -> EventEntry | None:
        """Adopt an unknown file, or set it aside; None if it is not adopted (yet)."""
        stream = self._stream
        try:
            document = read_document(path, event_id, stream.max_bytes + _ROUTING_BYTES, stream.paths.form)
            entry = document.entry(stream.clock(), os.lstat(path).st_mtime)
            if "createdAt" not in document.bus:
                self._last = entry.seq = max(entry.seq, self._last + 1)
        except FileNotFoundError:
            return None
        except InvalidEnvelope as error:
            age = time.time() - os.lstat(path).st_mtime
            if 0 <= age < GROWING:  # it may still be being written
                self._again = min(self._again, time.monotonic() + GROWING - age + 0.01)
            else:
                stream.set_aside(path, str(error))
            return None
        if os.path.exists(stream.paths.file("DONE", event_id)):
            stream.set_aside(path, f"event {event_id} was published before and is done; to run it again, requeue it")
            return None
        if status == "DEAD":
            entry.status, entry.ended_at = "DEAD", stream.clock()
        elif status == "PROCESSING":
            stream.mover.carry_out([FileMove(event_id, "PROCESSING", "PENDING")])
        else:
            stream.mover.restate(path, status)
        return entry

    def _same(self, path: str, other: str) -> bool:
        """Return whether two files hold the same document, except for its status."""
        form = self._stream.paths.form
        assert form is not None
        with contextlib.suppress(InvalidEnvelope, FileNotFoundError):
            mine, theirs = parse(read_bytes(path)), parse(read_bytes(other))
            return all(
                mine.get(key) == theirs.get(key)
                for key in (mine.keys() | theirs.keys()) - {form.status, INVALID_REASON}
            )
        return False

    def _moved(self, known: EventEntry, status: Status) -> EventEntry | None:
        """Return the new entry of an event whose file was moved to the directory of another status."""
        stream = self._stream
        entry = entry_from_row(entry_row(known))
        if status == "PROCESSING":  # not claimed, so it waits
            stream.mover.carry_out([FileMove(entry.event_id, "PROCESSING", "PENDING")])
        if status == "PENDING":
            with contextlib.suppress(InvalidEnvelope, FileNotFoundError):  # the next reader sets it aside
                stream.mover.restate(stream.paths.file(status, entry.event_id), status)
        if status == "DEAD":
            entry.status, entry.ended_at = "DEAD", stream.clock()
            entry.error_code, entry.error_message = "MOVED", "moved to the dead letters by hand"
        elif entry.status == "DEAD":
            entry.status, entry.ended_at, entry.ready_at = "PENDING", None, stream.clock()
            entry.attempts, entry.error_code, entry.error_message = 0, None, None
        else:
            entry.status = "PENDING"
        entry.token = entry.worker = None
        entry.until = 0.0
        return entry
