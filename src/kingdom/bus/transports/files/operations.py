"""The operations of workers and operators on one stream. All of them block."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kingdom.bus.delivery import DeadLetter, Delivery, Depth, Record, StreamOptions
from kingdom.bus.envelope import new_event_id
from kingdom.bus.stream_entry import LEASE_EXPIRED, entry_from_row, entry_row, utc_datetime
from kingdom.bus.transports.files.document import done_at, load_event, read_event, read_marks
from kingdom.bus.transports.files.layout import MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    from kingdom.bus.delivery import DeadVerdict, DoneVerdict, RetryVerdict, Status
    from kingdom.bus.stream_entry import EventEntry
    from kingdom.bus.stream_state import StreamStateMachine
    from kingdom.bus.transports.files.stream import FileStream


class ClaimRequest(NamedTuple):
    """The parameters of one claim."""

    worker: str
    limit: int
    lease: float
    types: Sequence[str] | None
    ids: Sequence[str] | None
    max_attempts: int


def claim(stream: FileStream, wanted: ClaimRequest) -> list[Delivery]:
    """Claim up to ``limit`` events for ``lease`` seconds."""
    claimed: list[Delivery] = []
    while len(claimed) < wanted.limit:
        token = new_event_id()
        held, all_there = _hold(stream, wanted, wanted.limit - len(claimed), token)
        try:
            for event_id, attempt in held:
                document = read_event(stream, event_id, "PROCESSING")
                if document is None:
                    all_there = False
                else:
                    claimed.append(Delivery(stream.name, document.envelope, attempt, token, wanted.worker))
        except OSError:  # the caller does not get these claims: release them
            _give_back(stream, [(item.event_id, item.token) for item in claimed])
            _give_back(stream, [(event_id, token) for event_id, _ in held])
            raise
        if all_there:
            break
    if claimed and stream.paths.form is not None:
        # The document was rewritten with a new status: after a power cut the ledger must agree with it.
        stream.sync({"PENDING", "PROCESSING"}, ledger=True)
    return claimed


def recall(stream: FileStream, worker: str, lease: float) -> list[Delivery]:
    """Hold everything that a worker holds under a new token."""
    token = new_event_id()
    with stream.locked() as state:
        held = [(entry.event_id, entry.attempts) for entry in state.held_by(worker)]
        if held:
            ids = [event_id for event_id, _ in held]
            stream.commit({"op": "recall", "ids": ids, "token": token, "until": round(stream.clock() + lease, 6)})
    found = ((read_event(stream, event_id, "PROCESSING"), attempt) for event_id, attempt in held)
    return [Delivery(stream.name, item.envelope, attempt, token, worker) for item, attempt in found if item is not None]


def _give_back(stream: FileStream, held: Sequence[tuple[str, str]]) -> None:
    with contextlib.suppress(OSError), stream.locked() as state:
        ids = [event_id for event_id, token in held if state.held(event_id, token)]
        if ids:
            stream.commit({"op": "release", "ids": ids})


def _hold(stream: FileStream, wanted: ClaimRequest, limit: int, token: str) -> tuple[list[tuple[str, int]], bool]:
    """Claim events; return their ids and attempts, and whether there was a file for each."""
    with stream.locked() as state:
        now = round(stream.clock(), 6)
        taken: list[EventEntry] = []
        try:
            while len(taken) < limit and (more := _take(state, now, limit - len(taken), wanted)):
                taken += more
                if spent := [entry for entry in more if entry.spent(wanted.max_attempts)]:
                    dead = [[entry.event_id, LEASE_EXPIRED, entry.expiry_message] for entry in spent]
                    stream.commit({"op": "settle", "at": now, "dead": dead})
                    taken = [entry for entry in taken if entry not in spent]
            taken.sort(key=lambda entry: entry.place)  # an event that went DEAD may have made another claimable
            if not taken:
                return [], True
            line = {"op": "claim", "ids": [entry.event_id for entry in taken], "token": token}
            missing = stream.commit({**line, "worker": wanted.worker, "until": round(now + wanted.lease, 6)})
        except OSError:
            for entry in taken:
                if entry.heap is None and entry.claimable:
                    state.put_back(entry)
            raise
        gone = {move.event_id for move in missing}
        return [(entry.event_id, entry.attempts) for entry in taken if entry.event_id not in gone], not gone


def _take(state: StreamStateMachine, now: float, limit: int, wanted: ClaimRequest) -> list[EventEntry]:
    if wanted.ids is None:
        return state.take(now, limit, wanted.types)
    return state.take_named(now, wanted.ids, limit, wanted.types)


def settle(
    stream: FileStream, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
) -> tuple[list[Delivery], bool]:
    """Write verdicts, durably.

    Returns the deliveries whose lease was lost, and whether events may have become claimable.
    """
    lost: list[Delivery] = []
    with stream.locked() as state:
        options = StreamOptions(document=stream.paths.form)
        for end in done:
            options.check_outcome(stream.name, end.outcome)
        now = round(stream.clock(), 6)
        seen: set[str] = set()

        def holds(delivery: Delivery) -> bool:
            if state.held(delivery.event_id, delivery.token) is None:
                lost.append(delivery)
                return False
            if delivery.event_id in seen:
                return False  # given twice: the first verdict counts
            seen.add(delivery.event_id)
            return True

        verdicts: dict[Status, list[Any]] = {
            "DONE": [end.delivery.event_id for end in done if holds(end.delivery)],
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
        lines: dict[str, Any] = {names[status]: items for status, items in verdicts.items() if items}
        if outcomes := {end.delivery.event_id: end.outcome for end in done if end.outcome is not None}:
            lines["outcomes"] = outcomes
        stream.commit({"op": "settle", "at": now, **lines})
    targets: set[Status] = {status for status, items in verdicts.items() if items}
    stream.sync({"PROCESSING", *targets}, ledger=targets != {"DONE"})
    return lost, stream.state.ordered or "PENDING" in targets


def extend(stream: FileStream, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
    """Set the leases to end ``lease`` seconds from now; return those that were lost."""
    with stream.locked():
        held, lost = _split(stream, deliveries)
        if held:
            stream.commit({"op": "extend", "ids": held, "until": round(stream.clock() + lease, 6)})
        return lost


def release(stream: FileStream, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return events unharmed; return the deliveries whose lease was lost."""
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


# ── operators ─────────────────────────────────────────────────────────────────────────────────────────────────────

_PURGE_HOLD_SECONDS = 0.01  # for which purge holds the lock
_PURGE_PAUSE_SECONDS = 2 * MAX_WAIT_SECONDS  # in between, in which every waiting process tries to lock again


def depths(streams: Iterable[FileStream]) -> dict[str, Depth]:
    """Count the events of each stream that was declared or has unfinished or dead events."""
    found = {}
    for stream in streams:
        with stream.locked() as state:
            if len(state) or stream.paths.declared:
                found[stream.name] = state.depth(stream.clock())
    return found


def pending_types(stream: FileStream) -> dict[str, int]:
    if not stream.exists:
        return {}
    with stream.locked() as state:
        return state.pending_types(stream.clock())


def peek(stream: FileStream, limit: int, types: Sequence[str] | None, skip: Container[str]) -> list[Record]:
    """Return what could be claimed now, in claim order."""
    if not stream.exists:
        return []
    with stream.locked() as state:
        waiting = (entry for entry in state.line(stream.clock(), types) if entry.event_id not in skip)
        entries = [entry_from_row(entry_row(entry)) for entry in islice(waiting, limit)]  # copies
    found = ((entry, read_event(stream, entry.event_id, entry.status)) for entry in entries)
    return [entry.record(stream.name, document.envelope) for entry, document in found if document is not None]


def dead(stream: FileStream, limit: int) -> list[DeadLetter]:
    if not stream.exists:
        return []
    with stream.locked() as state:
        facts = [
            (entry.event_id, entry.attempts, entry.error_code, entry.error_message, utc_datetime(entry.ended_at or 0))
            for entry in state.dead(limit)
        ]
    found = ((fact, read_event(stream, fact[0], "DEAD")) for fact in facts)
    return [DeadLetter(fact[0], document.envelope, *fact[1:]) for fact, document in found if document is not None]


def find(streams: Sequence[FileStream], event_id: str) -> Record | None:
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
        created_at=utc_datetime(document.entry(marks.at).created_at),
        error_code=marks.error_code,
        error_message=marks.error_message,
        finished_at=utc_datetime(marks.at),
        outcome=stream.paths.outcome(document.envelope.payload),
    )


def requeue(stream: FileStream, ids: Sequence[str] | None, event_type: str | None, error_code: str | None) -> int:
    """Move DEAD events, and DONE ones given by id, back to PENDING."""
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
        line = {"op": "requeue", "at": now, "ids": wanted, "entries": [entry_row(entry) for entry in done]}
        missing = stream.commit(line)
    stream.sync({"PENDING", "DEAD", "DONE"}, ledger=True)
    return len(wanted) + len(done) - len(missing)


def _done_entries(
    stream: FileStream, ids: Sequence[str], event_type: str | None, error_code: str | None, now: float
) -> list[EventEntry]:
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


def purge(
    stream: FileStream,
    older_than: float,
    with_dead: bool,
    keep: Collection[str] = (),
    only: Collection[str] | None = None,
) -> int:
    """Delete DONE, and with ``with_dead`` also DEAD events: those in ``only``, if given, and none in ``keep``."""
    if not stream.exists:
        return 0
    before = stream.clock() - older_than
    purged = 0

    def goes(event_id: str) -> bool:
        return event_id not in keep and (only is None or event_id in only)

    with stream.locked() as state:
        dead = [entry for entry in state.dead() if with_dead and (entry.ended_at or 0) < before]
        ids = [entry.event_id for entry in dead if goes(entry.event_id)]
        if ids:
            stream.commit({"op": "purge", "ids": ids})
            purged += len(ids)
        stream.paths.make()
    with os.scandir(stream.paths.states["DONE"]) as files:
        old = deque(
            file.path
            for file in files
            if file.name[0] != "." and goes(file.name.removesuffix(".json")) and _ended_before(file.path, before)
        )
    while old:
        with stream.locked():
            until = time.monotonic() + _PURGE_HOLD_SECONDS
            while old and time.monotonic() < until:
                path = old.popleft()
                if _ended_before(path, before):  # checked again: it may have been requeued meanwhile
                    os.unlink(path)
                    purged += 1
        if old:
            time.sleep(_PURGE_PAUSE_SECONDS)
    return purged


def _ended_before(path: str, before: float) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and done_at(found) < before
