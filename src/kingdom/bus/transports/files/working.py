"""What workers do with the events of a stream: claim, settle, extend, release. These block."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from kingdom.bus.delivery import Delivery, StreamOptions
from kingdom.bus.ids import new_event_id
from kingdom.bus.stream_state import LEASE_EXPIRED
from kingdom.bus.transports.files.reading import read_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.bus.delivery import DeadVerdict, DoneVerdict, RetryVerdict, Status
    from kingdom.bus.stream_state import Entry, StreamState
    from kingdom.bus.transports.files.stream import FileStream


class Claim(NamedTuple):
    """What a worker asks for."""

    worker: str
    limit: int
    lease: float
    types: Sequence[str] | None
    ids: Sequence[str] | None
    max_attempts: int


def claim(stream: FileStream, wanted: Claim) -> list[Delivery]:
    """Take up to ``limit`` events for ``lease`` seconds."""
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
        except OSError:  # nobody would know of these claims until their leases end
            _give_back(stream, [(item.event_id, item.token) for item in claimed])
            _give_back(stream, [(event_id, token) for event_id, _ in held])
            raise
        if all_there:
            break
    if claimed and stream.paths.form is not None:
        # Such a document lies in its new directory under a new status: what holds it must outlive a power cut, too.
        stream.sync({"PENDING", "PROCESSING"}, ledger=True)
    return claimed


def recall(stream: FileStream, worker: str, lease: float) -> list[Delivery]:
    """Hold anew, under a new token, everything a worker holds."""
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


def _hold(stream: FileStream, wanted: Claim, limit: int, token: str) -> tuple[list[tuple[str, int]], bool]:
    """Claim events; return their ids and attempts, and whether there was a file for each."""
    with stream.locked() as state:
        now = round(stream.clock(), 6)
        taken: list[Entry] = []
        try:
            while len(taken) < limit and (more := _take(state, now, limit - len(taken), wanted)):
                taken += more
                if spent := [entry for entry in more if entry.spent(wanted.max_attempts)]:
                    dead = [[entry.event_id, LEASE_EXPIRED, entry.epitaph] for entry in spent]
                    stream.commit({"op": "settle", "at": now, "dead": dead})
                    taken = [entry for entry in taken if entry not in spent]
            taken.sort(key=lambda entry: entry.place)  # a burial may have set another free
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


def _take(state: StreamState, now: float, limit: int, wanted: Claim) -> list[Entry]:
    if wanted.ids is None:
        return state.take(now, limit, wanted.types)
    return state.take_named(now, wanted.ids, limit, wanted.types)


def settle(
    stream: FileStream, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]
) -> tuple[list[Delivery], bool]:
    """Write verdicts, durably.

    Returns the deliveries whose lease was lost, and whether something may have become claimable by it.
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
                return False  # named twice: the first verdict counts
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
