"""Snapshots of a shard: its state in compressed pieces, each a record of the snapshot topic.

With the last one a process opens a stream by reading a bounded tail, however long its history is. The ledger before the
last but one is deleted, and so are the data records that only purged events needed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import uuid4

from kingdom.base.jsontext import encode
from kingdom.bus.errors import SchemaTooNew
from kingdom.bus.stream_entry import entry_from_row, entry_row
from kingdom.bus.transports.kafka import _operations as operations
from kingdom.bus.transports.kafka._clients import ProducedRecord
from kingdom.bus.transports.kafka._shard_state import EventTexts, ShardState, Snapshot

_VERSION: Final = 1
_ROWS: Final = 1000  # in a line
_PIECE_BYTES: Final = 512 << 10
_HEADER: Final = "snapshot"  # "id number-of-the-piece pieces position-in-the-ledger"

Line = dict[str, Any]


def lines_of(state: ShardState) -> list[Line]:
    """Return the state as lines of JSON values. Nothing may change meanwhile."""
    head: Line = {
        "version": _VERSION,
        "ledger": state.ledger_position,
        "data": state.data_position,
        "time": state.time,
        "purgedTo": state.purged_to,
        "options": None if state.options is None else operations.declare(state.options),
        "batches": {name: [entry_row(entry) for entry in entries] for name, entries in state.batches.items()},
        "snapshots": [list(one) for one in state.snapshots],
    }
    # DEAD events come last, in the order they died.
    entries = [entry for entry in state.machine if entry.status != "DEAD"] + state.machine.dead()[::-1]
    rows = [entry_row(entry) for entry in entries]
    done = [[event_id, *event] for event_id, event in state.done.items()]
    return [head, *({"entries": some} for some in _parts(rows)), *({"done": some} for some in _parts(done))]


def _parts(rows: list[list[Any]]) -> Iterator[list[list[Any]]]:
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


def records_of(lines: list[Line]) -> tuple[list[ProducedRecord], int]:
    """Return the records of a snapshot, and its size before it was compressed."""
    text = b"".join(encode(line).encode() + b"\n" for line in lines)
    whole, name = zlib.compress(text, 1), uuid4().hex
    pieces = [whole[start : start + _PIECE_BYTES] for start in range(0, len(whole), _PIECE_BYTES)]
    return [
        ProducedRecord(None, piece, [(_HEADER, f"{name} {number} {len(pieces)} {lines[0]['ledger']}".encode())])
        for number, piece in enumerate(pieces)
    ], len(text)


def last_snapshot(messages: Iterable[Any]) -> bytes | None:
    """Return the whole snapshot that is furthest in the ledger.

    That need not be the last in its topic: a process may have slept while it wrote one, or died half way.
    """
    found: dict[str, dict[int, bytes]] = {}
    furthest, last = -1, None
    for message in messages:
        mark = dict(message.headers() or ()).get(_HEADER, b"").decode().split()
        if len(mark) != 4:
            continue
        name, number, pieces, ledger = mark[0], int(mark[1]), int(mark[2]), int(mark[3])
        found.setdefault(name, {})[number] = message.value()
        if len(found[name]) == pieces and ledger > furthest:
            furthest, last = ledger, name
    return None if last is None else b"".join(piece for _, piece in sorted(found[last].items()))


def load(compressed: bytes, texts: EventTexts) -> ShardState:
    """Return the state of a snapshot."""
    state = ShardState(texts)
    head, *rest = [json.loads(line) for line in zlib.decompress(compressed).splitlines()]
    if head["version"] > _VERSION:
        raise SchemaTooNew("kafka: a snapshot was written by a newer version of kingdom: upgrade this process")
    state.ledger_position, state.data_position = head["ledger"], head["data"]
    state.time, state.purged_to = head["time"], head["purgedTo"]
    state.snapshots = [Snapshot(*one) for one in head["snapshots"]]
    state.batches = {name: [entry_from_row(row) for row in rows] for name, rows in head["batches"].items()}
    if head["options"] is not None:
        state.options = operations.options_of(head["options"])
        state.machine.configure(ordered=state.options.ordered, dead_head=state.options.dead_head)
    for line in rest:
        for row in line.get("entries", ()):
            state.machine.add(entry_from_row(row))
        for event_id, *fields in line.get("done", ()):
            state.done[event_id] = tuple(fields)
    return state
