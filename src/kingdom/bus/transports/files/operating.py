"""What operators ask of streams: how full they are, what died, what to run again, what to forget. These block."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from kingdom.bus.delivery import DeadLetter, Depth, Record
from kingdom.bus.stream_state import moment
from kingdom.bus.transports.files.guard import LONGEST_WAIT
from kingdom.bus.transports.files.lines import from_row, row
from kingdom.bus.transports.files.marks import done_at, read_marks
from kingdom.bus.transports.files.reading import load_event, read_event

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    from kingdom.bus.stream_state import Entry
    from kingdom.bus.transports.files.stream import FileStream

_PURGE_HOLD = 0.01  # seconds for which the lock is held, however slow the disk is
_PURGE_PAUSE = 2 * LONGEST_WAIT  # and then not: whoever waits for the lock looks again in that time


def depths(streams: Iterable[FileStream]) -> dict[str, Depth]:
    """How full each stream is; those that were not declared and have nothing unfinished or dead are left out."""
    found = {}
    for stream in streams:
        with stream.locked() as state:
            if len(state) or stream.paths.declared:
                found[stream.name] = state.depth(stream.clock())
    return found


def pending_types(stream: FileStream) -> dict[str, int]:
    """How many events of each type wait."""
    if not stream.exists:
        return {}
    with stream.locked() as state:
        return state.pending_types(stream.clock())


def peek(stream: FileStream, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
    """What could be claimed now, the first in line first."""
    if not stream.exists:
        return []
    with stream.locked() as state:
        waiting = (entry for entry in state.line(stream.clock(), types) if entry.event_id not in skip)
        entries = [from_row(row(entry)) for entry in islice(waiting, limit)]  # as they are now
    found = ((entry, read_event(stream, entry.event_id, entry.status)) for entry in entries)
    return [entry.record(stream.name, document.envelope) for entry, document in found if document is not None]


def dead(stream: FileStream, limit: int) -> list[DeadLetter]:
    """The latest dead letters, newest first."""
    if not stream.exists:
        return []
    with stream.locked() as state:
        facts = [
            (entry.event_id, entry.attempts, entry.error_code, entry.error_message, moment(entry.ended_at or 0))
            for entry in state.dead(limit)
        ]
    found = ((fact, read_event(stream, fact[0], "DEAD")) for fact in facts)
    return [DeadLetter(fact[0], document.envelope, *fact[1:]) for fact, document in found if document is not None]


def find(streams: Sequence[FileStream], event_id: str) -> Record | None:
    """Everything known of one event."""
    return next((record for stream in streams if (record := _record(stream, event_id))), None)


def _record(stream: FileStream, event_id: str) -> Record | None:
    with stream.locked() as state:
        entry = state.get(event_id)
        if entry is not None:
            document = load_event(stream, event_id, entry.status)
            return None if document is None else entry.record(stream.name, document.envelope)
        try:
            marks = read_marks(stream.paths.file("DONE", event_id))
        except FileNotFoundError:
            return None
        document = load_event(stream, event_id, "DONE")
    if document is None:
        return None
    return Record(
        stream.name,
        document.envelope,
        "DONE",
        marks.attempts,
        created_at=moment(document.entry(marks.at).created_at),
        error_code=marks.error_code,
        error_message=marks.error_message,
        finished_at=moment(marks.at),
        outcome=stream.paths.outcome(document.envelope.payload),
    )


def requeue(stream: FileStream, ids: Sequence[str] | None, event_type: str | None, error_code: str | None) -> int:
    """Move DEAD events, and DONE ones that are named, back to PENDING."""
    if not stream.exists:
        return 0
    with stream.locked() as state:
        now = round(stream.clock(), 6)
        named = None if ids is None else set(ids)
        wanted = [
            entry.event_id
            for entry in state.dead()
            if (named is None or entry.event_id in named)
            and event_type in (None, entry.type)
            and error_code in (None, entry.error_code)
        ]
        done = [] if ids is None else _done_entries(stream, ids, event_type, error_code, now)
        if not wanted and not done:
            return 0
        line = {"op": "requeue", "at": now, "ids": wanted, "entries": [row(entry) for entry in done]}
        missing = stream.commit(line)
    stream.sync({"PENDING", "DEAD", "DONE"}, ledger=True)
    return len(wanted) + len(done) - len(missing)


def _done_entries(
    stream: FileStream, ids: Sequence[str], event_type: str | None, error_code: str | None, now: float
) -> list[Entry]:
    entries = []
    for event_id in dict.fromkeys(ids):
        if event_id in stream.state:
            continue
        document = load_event(stream, event_id, "DONE")
        if document is None or event_type not in (None, document.envelope.type):
            continue
        if error_code not in (None, read_marks(stream.paths.file("DONE", event_id)).error_code):
            continue
        entry = document.entry(now)
        entry.ready_at = now
        entries.append(entry)
    return entries


def purge(stream: FileStream, older_than: float, with_dead: bool, keep: Collection[str] = ()) -> int:
    """Forget DONE, and with ``with_dead`` also DEAD events, but for those in ``keep``."""
    if not stream.exists:
        return 0
    before = stream.clock() - older_than
    purged = 0
    with stream.locked() as state:
        dead = [entry for entry in state.dead() if with_dead and (entry.ended_at or 0) < before]
        ids = [entry.event_id for entry in dead if entry.event_id not in keep]
        if ids:
            stream.commit({"op": "purge", "ids": ids})
            purged += len(ids)
        stream.paths.make()
    with os.scandir(stream.paths.states["DONE"]) as files:
        old = deque(
            file.path
            for file in files
            if file.name[0] != "." and file.name.removesuffix(".json") not in keep and _ended_before(file.path, before)
        )
    while old:
        with stream.locked():
            until = time.monotonic() + _PURGE_HOLD
            while old and time.monotonic() < until:
                path = old.popleft()
                if _ended_before(path, before):  # again: it may have been requeued, and done again, meanwhile
                    os.unlink(path)
                    purged += 1
        if old:
            time.sleep(_PURGE_PAUSE)
    return purged


def _ended_before(path: str, before: float) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and done_at(found) < before
