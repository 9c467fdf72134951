"""Looking into the directories, for what the ledger does not say.

Files are put into ``pending/`` by hand, moved from ``dead/`` to ``pending/``, or deleted; after a power cut the ledger
may lack its last lines. In each case the directories are right, and what is found is written into the ledger, so that
all processes agree. Only names are listed, and only files nobody knows are read.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.transports.files.document import parse
from kingdom.bus.transports.files.lines import Move, from_row, row
from kingdom.bus.transports.files.paths import ACTIVE, REASON, SUFFIX
from kingdom.bus.transports.files.reading import read_bytes, read_document
from kingdom.bus.transports.files.temporaries import remove_abandoned

if TYPE_CHECKING:
    from kingdom.bus.delivery import Status
    from kingdom.bus.stream_state import Entry
    from kingdom.bus.transports.files.stream import FileStream

INTERVAL: Final = 10.0  # seconds between looks at directories in which something moves
GROWING: Final = 2.0  # seconds a file that makes no sense must lie unchanged before it is set aside
_RARELY: Final = 100  # at most one part in this many of the time is spent looking in case something was missed,
_OFTEN: Final = 20  # or one in this many when something has changed for certain,
_CHEAP: Final = 0.02  # unless a look takes less than this, in seconds
_SLACK_BYTES: Final = 4096  # what a document may be longer than its envelope


class Scanner:
    """Compares the directories of one stream with its state. Used under the stream's lock only."""

    def __init__(self, stream: FileStream) -> None:
        self._stream = stream
        self._seen = b""  # the fingerprint of the directories at the last look
        self._earliest = 0.0  # by the monotonic clock: no look before this,
        self._latest = 0.0  # one after this if anything moved meanwhile,
        self._again = float("inf")  # and one after this in any case
        self._last = 0  # the last place in publish order given away

    def look(self, note: bytes, *, urgent: bool, changed: bool) -> bool:
        """Scan when it is time to: at once if ``urgent``, soon if somebody else ``changed`` the directories.

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
        self._earliest = now + (took * _OFTEN if took > _CHEAP else 0.0)
        self._latest = now + max(INTERVAL, took * _RARELY)
        self._seen = note
        return True

    @property
    def due(self) -> bool:
        """Whether the next one to take the lock looks. Needs no lock."""
        return self._again <= time.monotonic()

    def hurry(self) -> None:
        """Let the next one to take the lock look. Needs no lock."""
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
            stream.commit({"op": "set", "entries": [row(entry) for entry in changed]})
        if some_missing:
            lost = [entry.event_id for entry in state if not os.path.lexists(paths.file(entry.status, entry.event_id))]
            if lost:
                stream.commit({"op": "forget", "ids": lost})

    def _explain(self, event_id: str, status: Status) -> Entry | None:
        """A file that is not where it is known to be: what the ledger should say of it, if anything."""
        paths, known = self._stream.paths, self._stream.state.get(event_id)
        if known is None:
            return self._adopt(paths.file(status, event_id), event_id, status)
        if os.path.lexists(home := paths.file(known.status, event_id)):
            if paths.form is not None and self._same(home, paths.file(status, event_id)):
                os.unlink(paths.file(status, event_id))  # a change of status the power cut interrupted
                return None
            self._stream.set_aside(paths.file(status, event_id), f"a copy: event {event_id} lies in {home}")
            return None
        return self._moved(known, status)

    def _adopt(self, path: str, event_id: str, status: Status) -> Entry | None:
        """Take in a file nobody knows, or set it aside; None when it is not taken in (yet)."""
        stream = self._stream
        try:
            document = read_document(path, event_id, stream.max_bytes + _SLACK_BYTES, stream.paths.form)
            entry = document.entry(stream.clock())
            if "createdAt" not in document.bus:
                self._last = entry.seq = max(entry.seq, self._last + 1)
        except FileNotFoundError:
            return None
        except InvalidEnvelope as error:
            age = time.time() - os.lstat(path).st_mtime
            if 0 <= age < GROWING:  # perhaps it is being written this moment
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
            stream.mover.carry_out([Move(event_id, "PROCESSING", "PENDING")])
        else:
            stream.mover.restate(path, status)
        return entry

    def _same(self, path: str, other: str) -> bool:
        """Whether two files hold the same document, but for its status."""
        form = self._stream.paths.form
        assert form is not None
        with contextlib.suppress(InvalidEnvelope, FileNotFoundError):
            mine, theirs = parse(read_bytes(path)), parse(read_bytes(other))
            return all(mine.get(key) == theirs.get(key) for key in (mine.keys() | theirs.keys()) - {form.status})
        return False

    def _moved(self, known: Entry, status: Status) -> Entry | None:
        """An event whose file lies in the directory of another status: what becomes of it."""
        stream = self._stream
        entry = from_row(row(known))
        if status == "PROCESSING":  # nobody claimed it, so it waits
            stream.mover.carry_out([Move(entry.event_id, "PROCESSING", "PENDING")])
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
