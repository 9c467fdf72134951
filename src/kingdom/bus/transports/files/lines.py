"""What the lines of a ledger mean: each changes the state of the stream and asks for renames.

The same functions serve the process that acts, the others that read about it, and whoever finishes the renames of a
process that died in between: there is one meaning of each operation, not three.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kingdom.bus.envelope import PRIORITIES
from kingdom.bus.stream_state import Entry, aggregate_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kingdom.bus.delivery import Status
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.stream_state import StreamState
    from kingdom.bus.transports.files.ledger import Line

_SNAPSHOT_ROWS: Final = 1000  # entries per line of a snapshot


class Move(NamedTuple):
    """A file that changes its directory. ``source`` may be a temporary name; the target ``GONE`` means unlinked."""

    event_id: str
    source: Status | str
    target: Status | Literal["GONE"]
    at: float = 0.0
    attempts: int = 0
    error_code: str | None = None
    error_message: str | None = None
    outcome: str | None = None  # of a document that is done


def apply(state: StreamState, line: Line) -> list[Move]:
    """Change the state as the line says; return the moves that belong to it. Unknown lines mean nothing."""
    meaning = _MEANINGS.get(line.get("op", ""))
    return [] if meaning is None else meaning(state, line)


def makes_claimable(line: Line, ordered: bool) -> bool:
    """Whether an event may have become claimable by what the line says."""
    op = line.get("op")
    if op == "settle":
        return ordered or "retry" in line
    return op in ("publish", "release", "requeue", "set", "options") or (ordered and op in ("purge", "forget"))


def new_row(envelope: Envelope, seq: int, now: float) -> list[Any]:
    """The row of an event that is published now; the short form of :func:`row`."""
    return [
        envelope.event_id,
        envelope.type,
        aggregate_key(envelope),
        PRIORITIES.index(envelope.priority),
        seq,
        now,
        now if envelope.not_before is None else max(now, envelope.not_before.timestamp()),
    ]


def row(entry: Entry) -> list[Any]:
    """An entry as it stands in a line. The short form is that of an event nothing has happened to yet."""
    head = [
        entry.event_id,
        entry.type,
        entry.aggregate,
        entry.priority,
        entry.seq,
        entry.created_at,
        entry.ready_at,
    ]
    if entry.status == "PENDING" and not entry.attempts and entry.error_code is None:
        return head
    return [
        *head,
        entry.status,
        entry.attempts,
        entry.token,
        entry.worker,
        entry.until,
        entry.error_code,
        entry.error_message,
        entry.ended_at,
    ]


def from_row(fields: list[Any]) -> Entry:
    """The entry of a row."""
    event_id, kind, aggregate, priority, seq, created_at, ready_at, *rest = fields
    entry = Entry(
        event_id,
        sys.intern(kind),
        seq=seq,
        created_at=created_at,
        ready_at=ready_at,
        aggregate=aggregate,
        priority=priority,
    )
    if rest:
        (
            entry.status,
            entry.attempts,
            entry.token,
            entry.worker,
            entry.until,
            entry.error_code,
            entry.error_message,
            entry.ended_at,
        ) = rest
    return entry


def snapshot(state: StreamState) -> Iterator[Line]:
    """Lines that bring an empty state to this one. The dead come last, in the order they died."""
    entries = [entry for entry in state if entry.status != "DEAD"] + state.dead()[::-1]
    for start in range(0, len(entries), _SNAPSHOT_ROWS):
        yield {"op": "set", "entries": [row(entry) for entry in entries[start : start + _SNAPSHOT_ROWS]]}


def _publish(state: StreamState, line: Line) -> list[Move]:
    moves = []
    for fields in line["entries"]:
        if fields[0] not in state:
            state.add(from_row(fields))
            moves.append(Move(fields[0], line["tmp"] + fields[0], "PENDING"))
    return moves


def _claim(state: StreamState, line: Line) -> list[Move]:
    token, worker, until = line["token"], sys.intern(line["worker"]), line["until"]
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(Move(event_id, entry.status, "PROCESSING"))
            state.hold(entry, token, worker, until)
    return moves


def _settle(state: StreamState, line: Line) -> list[Move]:
    at, moves = line["at"], []
    outcomes = line.get("outcomes", {})
    for event_id in line.get("done", ()):
        if entry := state.get(event_id):
            facts = entry.attempts, entry.error_code, entry.error_message
            moves.append(Move(event_id, entry.status, "DONE", at, *facts, outcomes.get(event_id)))
            state.remove(entry)
    for event_id, ready_at, code, message in line.get("retry", ()):
        if entry := state.get(event_id):
            moves.append(Move(event_id, entry.status, "PENDING"))
            state.retry(entry, ready_at, code, message)
    for event_id, code, message in line.get("dead", ()):
        if entry := state.get(event_id):
            moves.append(Move(event_id, entry.status, "DEAD", at, entry.attempts, code, message))
            state.bury(entry, code, message, at)
    return moves


def _extend(state: StreamState, line: Line) -> list[Move]:
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            state.extend(entry, line["until"])
    return []


def _recall(state: StreamState, line: Line) -> list[Move]:
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            state.recall(entry, line["token"], line["until"])
    return []


def _release(state: StreamState, line: Line) -> list[Move]:
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(Move(event_id, entry.status, "PENDING"))
            state.release(entry)
    return moves


def _requeue(state: StreamState, line: Line) -> list[Move]:
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(Move(event_id, entry.status, "PENDING"))
            state.requeue(entry, line["at"])
    for fields in line["entries"]:  # those that were DONE
        if fields[0] not in state:
            state.add(from_row(fields))
            moves.append(Move(fields[0], "DONE", "PENDING"))
    return moves


def _purge(state: StreamState, line: Line) -> list[Move]:
    moves = []
    for event_id in line["ids"]:
        if entry := state.get(event_id):
            moves.append(Move(event_id, entry.status, "GONE"))
            state.remove(entry)
    return moves


def _forget(state: StreamState, line: Line) -> list[Move]:
    _purge(state, line)
    return []


def _set(state: StreamState, line: Line) -> list[Move]:
    for fields in line["entries"]:
        if entry := state.get(fields[0]):
            state.remove(entry)
        state.add(from_row(fields))
    return []


_MEANINGS: Final[dict[str, Callable[[StreamState, Line], list[Move]]]] = {
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
