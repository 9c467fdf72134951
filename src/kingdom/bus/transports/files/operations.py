"""What is done with the events of a stream, except publishing. These block; the transport calls them in threads."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from kingdom.bus.delivery import DeadLetter, Delivery, Depth, Record
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.ids import new_event_id
from kingdom.bus.stream_state import LEASE_EXPIRED, moment
from kingdom.bus.transports.files.document import Document, decode
from kingdom.bus.transports.files.lines import row
from kingdom.bus.transports.files.marks import done_at, read_marks
from kingdom.bus.transports.files.scan import read_file
from kingdom.bus.transports.files.syncing import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kingdom.bus.delivery import DeadVerdict, RetryVerdict, Status, StreamOptions
    from kingdom.bus.stream_state import Entry
    from kingdom.bus.transports.files.stream import FileStream

_PURGE_CHUNK = 500  # files removed while the lock is held


class Claim(NamedTuple):
    """What a worker asks for."""

    worker: str
    limit: int
    lease: float
    types: Sequence[str] | None
    max_attempts: int


def configure(stream: FileStream, options: StreamOptions) -> None:
    """Store the options of a stream."""
    with stream.locked():
        stream.configure(options)


def claim(stream: FileStream, wanted: Claim) -> list[Delivery]:
    """Take up to ``limit`` events for ``lease`` seconds."""
    claimed: list[Delivery] = []
    while len(claimed) < wanted.limit:
        token = new_event_id()
        held, all_there = _hold(stream, wanted, wanted.limit - len(claimed), token)
        for entry in held:
            document = _read(stream, entry.event_id, "PROCESSING")
            if document is None:
                all_there = False
            else:
                claimed.append(Delivery(stream.name, document.envelope, entry.attempts, token, wanted.worker))
        if all_there:
            break
    return claimed


def _hold(stream: FileStream, wanted: Claim, limit: int, token: str) -> tuple[list[Entry], bool]:
    """Claim events; return them, and whether there was a file for each."""
    with stream.locked() as state:
        now = round(stream.clock(), 6)
        while spent := state.spent(now, wanted.max_attempts, wanted.types):
            dead = [[entry.event_id, LEASE_EXPIRED, entry.epitaph] for entry in spent]
            stream.commit({"op": "settle", "at": now, "dead": dead})
        taken = state.take(now, limit, wanted.types)
        if not taken:
            return [], True
        ids = [entry.event_id for entry in taken]
        until = round(now + wanted.lease, 6)
        try:
            missing = stream.commit(
                {"op": "claim", "ids": ids, "token": token, "worker": wanted.worker, "until": until}
            )
        except OSError:
            for entry in taken:
                if entry.heap is None and entry.claimable:
                    state.put_back(entry)
            raise
        gone = {move.event_id for move in missing}
        return [entry for entry in taken if entry.event_id not in gone], not gone


def settle(
    stream: FileStream, done: Sequence[Delivery], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
) -> tuple[list[Delivery], bool]:
    """Write verdicts, durably.

    Returns the deliveries whose lease was lost, and whether something may have become claimable by it.
    """
    lost: list[Delivery] = []
    with stream.locked() as state:
        now = round(stream.clock(), 6)
        seen: set[str] = set()

        def holds(delivery: Delivery) -> bool:
            if state.held(delivery.event_id, delivery.token) is None:
                lost.append(delivery)
                return False
            if delivery.event_id in seen:
                return False  # named twice: the first verdict counts
            seen.add(delivery.event_id)
            return True

        verdicts: dict[Status, list[Any]] = {
            "DONE": [delivery.event_id for delivery in done if holds(delivery)],
            "PENDING": [
                [again.delivery.event_id, round(now + again.after, 6), again.code, again.message]
                for again in retry
                if holds(again.delivery)
            ],
            "DEAD": [[end.delivery.event_id, end.code, end.message] for end in dead if holds(end.delivery)],
        }
        if not seen:
            return lost, False
        names = {"DONE": "done", "PENDING": "retry", "DEAD": "dead"}
        lines = {names[status]: items for status, items in verdicts.items() if items}
        stream.commit({"op": "settle", "at": now, **lines})
    targets: set[Status] = {status for status, items in verdicts.items() if items}
    _sync(stream, {"PROCESSING", *targets}, ledger=targets != {"DONE"})
    return lost, stream.state.ordered or "PENDING" in targets


def extend(stream: FileStream, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
    """Let the leases end ``lease`` seconds from now; return those that were lost."""
    with stream.locked():
        held, lost = _split(stream, deliveries)
        if held:
            stream.commit({"op": "extend", "ids": held, "until": round(stream.clock() + lease, 6)})
        return lost


def release(stream: FileStream, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Give events back untouched; return those that were lost."""
    with stream.locked():
        held, lost = _split(stream, deliveries)
        if held:
            stream.commit({"op": "release", "ids": held})
        return lost


def _split(stream: FileStream, deliveries: Sequence[Delivery]) -> tuple[list[str], list[Delivery]]:
    held, lost = [], []
    for delivery in deliveries:
        if stream.state.held(delivery.event_id, delivery.token) is None:
            lost.append(delivery)
        else:
            held.append(delivery.event_id)
    return held, lost


def depths(streams: Iterable[FileStream]) -> dict[str, Depth]:
    """How full each stream is; those in which nothing was ever declared or published are left out."""
    found = {}
    for stream in streams:
        with stream.locked() as state:
            if len(state) or stream.ledger.offset or stream.paths.declared:
                found[stream.name] = state.depth(stream.clock())
    return found


def pending_types(stream: FileStream) -> dict[str, int]:
    """How many events of each type wait."""
    if not stream.exists:
        return {}
    with stream.locked() as state:
        return state.pending_types(stream.clock())


def dead(stream: FileStream, limit: int) -> list[DeadLetter]:
    """The latest dead letters, newest first."""
    if not stream.exists:
        return []
    with stream.locked() as state:
        facts = [
            (entry.event_id, entry.attempts, entry.error_code, entry.error_message, moment(entry.ended_at or 0))
            for entry in state.dead(limit)
        ]
    found = ((fact, _read(stream, fact[0], "DEAD")) for fact in facts)
    return [DeadLetter(fact[0], document.envelope, *fact[1:]) for fact, document in found if document is not None]


def find(streams: Sequence[FileStream], event_id: str) -> Record | None:
    """Everything known of one event."""
    return next((record for stream in streams if (record := _record(stream, event_id))), None)


def _record(stream: FileStream, event_id: str) -> Record | None:
    with stream.locked() as state:
        entry = state.get(event_id)
        if entry is not None:
            document = _load(stream, event_id, entry.status)
            return None if document is None else entry.record(stream.name, document.envelope)
        try:
            marks = read_marks(stream.paths.file("DONE", event_id))
        except FileNotFoundError:
            return None
        document = _load(stream, event_id, "DONE")
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
    _sync(stream, {"PENDING", "DEAD", "DONE"}, ledger=True)
    return len(wanted) + len(done) - len(missing)


def _done_entries(
    stream: FileStream, ids: Sequence[str], event_type: str | None, error_code: str | None, now: float
) -> list[Entry]:
    entries = []
    for event_id in dict.fromkeys(ids):
        if event_id in stream.state:
            continue
        document = _load(stream, event_id, "DONE")
        if document is None or event_type not in (None, document.envelope.type):
            continue
        if error_code not in (None, read_marks(stream.paths.file("DONE", event_id)).error_code):
            continue
        entry = document.entry(now)
        entry.ready_at = now
        entries.append(entry)
    return entries


def purge(stream: FileStream, older_than: float, with_dead: bool) -> int:
    """Forget DONE, and with ``with_dead`` also DEAD events."""
    if not stream.exists:
        return 0
    before = stream.clock() - older_than
    purged = 0
    if with_dead:
        with stream.locked() as state:
            ids = [entry.event_id for entry in state.dead() if (entry.ended_at or 0) < before]
            if ids:
                stream.commit({"op": "purge", "ids": ids})
                purged += len(ids)
    folder = stream.paths.states["DONE"]
    with os.scandir(folder) as files:
        old = [file.path for file in files if file.name[0] != "." and _ended_before(file.path, before)]
    for start in range(0, len(old), _PURGE_CHUNK):
        with stream.locked():  # and look again: it may have been requeued, and done again, meanwhile
            for path in old[start : start + _PURGE_CHUNK]:
                if _ended_before(path, before):
                    os.unlink(path)
                    purged += 1
    return purged


def _ended_before(path: str, before: float) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and done_at(found) < before


def _read(stream: FileStream, event_id: str, status: Status) -> Document | None:
    """The document of an event in this status; when it makes no sense, it is set aside, and None returned."""
    try:
        return decode(read_file(stream.paths.file(status, event_id)), event_id)
    except (FileNotFoundError, InvalidEnvelope):
        with stream.locked() as state:
            entry = state.get(event_id)
            return None if entry is None else _load(stream, event_id, entry.status)


def _load(stream: FileStream, event_id: str, status: Status) -> Document | None:
    """:func:`_read` for those who have the lock."""
    path = stream.paths.file(status, event_id)
    try:
        return decode(read_file(path), event_id)
    except FileNotFoundError:
        return None
    except InvalidEnvelope as error:
        stream.set_aside(path, str(error))
        if event_id in stream.state:
            stream.commit({"op": "forget", "ids": [event_id]})
        return None


def _sync(stream: FileStream, statuses: set[Status], *, ledger: bool) -> None:
    for folder in {stream.paths.states[status] for status in statuses}:
        sync_directory(folder)
    if ledger:
        stream.ledger.sync()
