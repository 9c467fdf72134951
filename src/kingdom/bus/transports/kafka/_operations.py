"""Operations of the ledger: how they are written, and what each does to the state of a shard.

``apply`` returns what the author of the operation waits for. It must not depend on anything but the state and the
operation: every process applies it, at another moment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from kingdom.base.jsontext import decode, encode
from kingdom.bus.delivery import DeadVerdict, Delivery, DoneVerdict, RetryVerdict, StreamOptions
from kingdom.bus.errors import SchemaTooNew
from kingdom.bus.outbox import form_from_json, form_to_json
from kingdom.bus.stream_entry import LEASE_EXPIRED, EventEntry
from kingdom.bus.transports.kafka._shard_state import Operation, ShardState, Snapshot

_VERSION: Final = 1  # of operations; a process that does not know one stops instead of deciding otherwise than others
_MAX_MESSAGE_CHARS: Final = 4000  # of an error


class ClaimedEvent(NamedTuple):
    """What a claim or a recall says about one event."""

    event_id: str
    attempt: int
    offset: int
    place: tuple[int, float, int]  # in claim order


def encode_operation(operation: Operation) -> bytes:
    return encode({"v": _VERSION, **operation}).encode()


def decode_operation(value: bytes, where: str) -> Operation:
    operation = decode(value.decode())
    if not isinstance(operation, dict) or operation.get("v", 0) > _VERSION or operation.get("op") not in _MEANINGS:
        raise SchemaTooNew(f"{where} was written by a newer version of kingdom: upgrade this process")
    return operation


def apply(state: ShardState, operation: Operation, at: float) -> Any:
    """Apply an operation at the time it was appended."""
    return _MEANINGS[operation["op"]](state, operation, state.advance(at))


# ── how they are written ──────────────────────────────────────────────────────────────────────────────────────────


def claim(
    token: str,
    worker: str,
    limit: int,
    lease: float,
    types: Sequence[str] | None,
    ids: Sequence[str] | None,
    max_attempts: int,
) -> Operation:
    operation = {"op": "claim", "token": token, "worker": worker, "limit": limit, "lease": lease, "max": max_attempts}
    if types is not None:
        operation["types"] = list(types)
    if ids is not None:
        operation["ids"] = list(ids)
    return operation


def settle(
    done: Iterable[DoneVerdict], retry: Iterable[RetryVerdict], dead: Iterable[DeadVerdict], remember: int
) -> Operation:
    operation: Operation = {"op": "settle", "remember": remember}
    by_token: dict[str, list[Any]] = {}
    for good in done:
        event = good.delivery.event_id
        by_token.setdefault(good.delivery.token, []).append(event if good.outcome is None else [event, good.outcome])
    if by_token:
        operation["done"] = by_token
    again = [
        [item.delivery.event_id, item.delivery.token, item.after, item.code, _short(item.message)] for item in retry
    ]
    if again:
        operation["retry"] = again
    ended = [[item.delivery.event_id, item.delivery.token, item.code, _short(item.message)] for item in dead]
    if ended:
        operation["dead"] = ended
    return operation


def extend(deliveries: Iterable[Delivery], lease: float) -> Operation:
    return {"op": "extend", "held": _by_token(deliveries), "lease": lease}


def release(deliveries: Iterable[Delivery]) -> Operation:
    return {"op": "release", "held": _by_token(deliveries)}


def declare(options: StreamOptions) -> Operation:
    return {
        "op": "declare",
        "ordered": options.ordered,
        "deadHead": options.dead_head,
        "states": options.states,
        "document": form_to_json(options.document),
    }


def _by_token(deliveries: Iterable[Delivery]) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for delivery in deliveries:
        held.setdefault(delivery.token, []).append(delivery.event_id)
    return held


def _short(message: str | None) -> str | None:
    return None if message is None else message[:_MAX_MESSAGE_CHARS]


def options_of(operation: Operation) -> StreamOptions:
    return StreamOptions(
        ordered=operation["ordered"],
        dead_head=operation["deadHead"],
        states=operation["states"],
        document=form_from_json(operation["document"]),
    )


# ── what they do ──────────────────────────────────────────────────────────────────────────────────────────────────


def _look(state: ShardState, operation: Operation, now: float) -> None:
    """Change nothing: its author wants to know the time, and to have everything before it counted."""


def _declare(state: ShardState, operation: Operation, now: float) -> None:
    state.options = options_of(operation)
    state.machine.configure(ordered=state.options.ordered, dead_head=state.options.dead_head)


def _claim(state: ShardState, operation: Operation, now: float) -> list[ClaimedEvent]:
    limit, types, ids = operation["limit"], operation.get("types"), operation.get("ids")
    machine, chosen, in_order = state.machine, list[EventEntry](), True
    while len(chosen) < limit:
        wanted = limit - len(chosen)
        taken = machine.take(now, wanted, types) if ids is None else machine.take_named(now, ids, wanted, types)
        if not taken:
            break
        in_order = not chosen  # an event that goes DEAD may make another claimable
        for entry in taken:
            if entry.spent(operation["max"]):
                machine.bury(entry, LEASE_EXPIRED, entry.expiry_message, now)
            else:
                chosen.append(entry)
    token, worker, until = operation["token"], sys.intern(operation["worker"]), now + operation["lease"]
    if not in_order:
        chosen.sort(key=lambda entry: entry.place)
    for entry in chosen:
        machine.hold(entry, token, worker, until)
    return [_claimed(entry) for entry in chosen]


def _claimed(entry: EventEntry) -> ClaimedEvent:
    return ClaimedEvent(entry.event_id, entry.attempts, entry.seq, entry.place)


def _recall(state: ShardState, operation: Operation, now: float) -> list[ClaimedEvent]:
    held = state.machine.held_by(operation["worker"])
    for entry in held:
        state.machine.recall(entry, operation["token"], now + operation["lease"])
    return [_claimed(entry) for entry in held]


Lost = set[tuple[str, str]]  # event id and token of deliveries that are no longer held


def _settle(state: ShardState, operation: Operation, now: float) -> Lost:
    lost: Lost = set()

    def held(event_id: str, token: str) -> EventEntry | None:
        entry = state.machine.held(event_id, token)
        if entry is None:
            lost.add((event_id, token))
        return entry

    for token, events in operation.get("done", {}).items():
        for event in events:
            event_id, outcome = (event, None) if isinstance(event, str) else event
            if entry := held(event_id, token):
                state.finish(entry, now, outcome)
    for event_id, token, after, code, message in operation.get("retry", ()):
        if entry := held(event_id, token):
            state.machine.retry(entry, now + after, code, message)
    for event_id, token, code, message in operation.get("dead", ()):
        if entry := held(event_id, token):
            state.machine.bury(entry, code, message, now)
    state.forget_finished(operation["remember"])
    return lost


def _on_held(state: ShardState, operation: Operation, act: Callable[[EventEntry], None]) -> Lost:
    lost: Lost = set()
    for token, events in operation["held"].items():
        for event_id in events:
            entry = state.machine.held(event_id, token)
            if entry is None:
                lost.add((event_id, token))
            else:
                act(entry)
    return lost


def _extend(state: ShardState, operation: Operation, now: float) -> Lost:
    until = now + operation["lease"]
    return _on_held(state, operation, lambda entry: state.machine.extend(entry, until))


def _release(state: ShardState, operation: Operation, now: float) -> Lost:
    return _on_held(state, operation, state.machine.release)


def _requeue(state: ShardState, operation: Operation, now: float) -> int:
    return state.requeue(operation["ids"], operation["type"], operation["code"], now)


def _purge(state: ShardState, operation: Operation, now: float) -> int:
    only = operation.get("only")
    return state.purge(
        now - operation["older"], operation["dead"], set(operation["keep"]), None if only is None else set(only)
    )


def _snapshot(state: ShardState, operation: Operation, now: float) -> None:
    """Change nothing: its author writes down the state as it is after this operation."""


def _snapshotted(state: ShardState, operation: Operation, now: float) -> None:
    # By their position in the ledger: a process may sleep while it writes one, and others write later ones.
    state.snapshots = sorted([*state.snapshots, Snapshot(*operation["snapshot"])])[-2:]


_MEANINGS: Final[dict[str, Callable[[ShardState, Operation, float], Any]]] = {
    "look": _look,
    "declare": _declare,
    "claim": _claim,
    "recall": _recall,
    "settle": _settle,
    "extend": _extend,
    "release": _release,
    "requeue": _requeue,
    "purge": _purge,
    "snapshot": _snapshot,
    "snapshotted": _snapshotted,
}


def makes_claimable(operation: Operation, ordered: bool) -> bool:
    """Return whether the operation may have made an event claimable."""
    name = operation["op"]
    if name == "settle":
        return ordered or "retry" in operation
    return name in ("declare", "release", "requeue") or (ordered and name == "purge")
