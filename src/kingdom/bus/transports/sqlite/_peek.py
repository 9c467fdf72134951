"""Looking at what a claim would take."""

from __future__ import annotations

import heapq
import json
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.outbox import statement
from kingdom.bus.transports.sqlite._claim import batches, names, terms
from kingdom.bus.transports.sqlite._operate import record

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Container, Iterator

    from kingdom.bus.delivery import Record

_PAGE: Final = 500  # events whose ids are looked up at once

Place = tuple[int, float, int]  # priority, ready time, row id


def peek(
    connection: sqlite3.Connection,
    stream: str,
    limit: int,
    types: list[str] | None,
    skip: Container[str],
    now: float,
) -> list[Record]:
    """The first ``limit`` events that could be claimed, but for those in ``skip``."""
    given = {"stream": stream, "types": None if types is None else json.dumps(types), "now": now}
    first: set[Place] = set()
    for batch in batches(connection, stream, types):
        first.update(_unskipped(connection, batch, given, limit, skip))
    ids = json.dumps([row for _, _, row in heapq.nsmallest(limit, first)])
    return [record(row) for row in connection.execute(statement("sqlite", "records"), {"ids": ids})]


def _unskipped(
    connection: sqlite3.Connection, types: list[str], given: dict[str, Any], limit: int, skip: Container[str]
) -> Iterator[Place]:
    """The places of the first ``limit`` events of these types that are not skipped.

    The statement yields them in order as they are asked for, so that no more is read than is looked at.
    """
    cursor = connection.execute(f"{terms(len(types))} ORDER BY 1, 2, 3", {**given, **names(types)})
    size = min(limit, _PAGE)
    while limit > 0 and (page := cursor.fetchmany(size)):
        ids = json.dumps([row for _, _, row in page])
        event_ids = dict(connection.execute(statement("sqlite", "peek_ids"), {"ids": ids}).fetchall())
        found = [place for place in page if event_ids[place[2]] not in skip]
        yield from found
        limit -= len(found)
        size = _PAGE
