"""Claim events, or peek at what a claim would take."""

from __future__ import annotations

import heapq
import json
import secrets
import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.bus.delivery import DeadVerdict, Delivery
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY, statement
from kingdom.bus.transports.sqlite._operations import record_from_row

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from kingdom.bus.delivery import Record


_SEPARATOR: Final = "\x1e"  # as in claim_select.sql
_FEW_TYPES: Final = 16  # up to this many are looked up without asking first which of them have events
_MAX_TYPES: Final = 100  # in one statement; SQLite allows 500 terms, and a type is three of them


class SqliteClaim(NamedTuple):
    """The parameters of one claim."""

    stream: str
    worker: str
    limit: int
    lease: float
    types: list[str] | None
    ids: Sequence[str] | None
    max_attempts: int
    token: str  # no other claim has it


class ClaimedRows(NamedTuple):
    """Claimed rows: heads (priority, ready time, row id, attempt, aggregate) and their envelopes, in the same order."""

    heads: list[list[Any]]
    envelopes: list[str]


class _SomeSpent(Exception):
    """Some events have no attempts left: they must go DEAD before others are claimed."""


def new_claim(
    stream: str,
    worker: str,
    limit: int,
    lease: float,
    types: Sequence[str] | None,
    ids: Sequence[str] | None,
    max_attempts: int,
) -> SqliteClaim:
    wanted = None if types is None else sorted(set(types))
    return SqliteClaim(stream, worker, limit, lease, wanted, ids, max_attempts, new_token(worker))


def new_token(worker: str) -> str:
    """Return a token that no other claim has, and that names the worker."""
    return f"{worker}/{secrets.token_hex(8)}"


def take(connection: sqlite3.Connection, claim: SqliteClaim, now: float) -> ClaimedRows | None:
    """Hold what can be claimed; events without attempts left go DEAD. Writes nothing if there is nothing to claim."""
    given = {
        "stream": claim.stream,
        "types": None if claim.types is None else json.dumps(claim.types),
        "event_ids": None if claim.ids is None else json.dumps(claim.ids),
        "now": now,
        "max_attempts": claim.max_attempts,
    }
    try:
        found = _find(connection, claim, given)
    except _SomeSpent:
        while connection.execute(_bury(), given).rowcount:
            pass  # in an ordered stream, the follower of an event that went DEAD may have no attempts left either
        found = _find(connection, claim, given)
    if not found.heads:
        return None
    held = {
        "ids": json.dumps([head[2] for head in found.heads]),
        "token": claim.token,
        "now": now,
        "lease": claim.lease,
    }
    connection.execute(statement("sqlite", "claim_hold"), held)
    return found


def _find(connection: sqlite3.Connection, claim: SqliteClaim, given: dict[str, Any]) -> ClaimedRows:
    if claim.ids is not None:
        return _chosen(connection, _named(), {**given, "limit": claim.limit})
    found = ClaimedRows([], [])
    for batch in type_batches(connection, claim.stream, claim.types):
        found = _merged(found, _select(connection, batch, claim.limit, given), claim.limit)
    return found


def recall(
    connection: sqlite3.Connection, stream: str, worker: str, token: str, lease: float, now: float
) -> ClaimedRows:
    """Hold what the worker holds under a new ``token``."""
    given = {"stream": stream, "worker": worker, "token": token, "lease": lease, "now": now}
    if not connection.execute(statement("sqlite", "recall"), given).rowcount:
        return ClaimedRows([], [])
    rows = connection.execute(statement("sqlite", "recalled"), {"stream": stream, "token": token}).fetchall()
    return ClaimedRows([list(row[:6]) for row in rows], [row[6] for row in rows])


def deliveries(stream: str, worker: str, token: str, claimed: ClaimedRows) -> tuple[list[Delivery], list[DeadVerdict]]:
    """Turn claimed rows into deliveries in claim order; also return DEAD verdicts for rows that cannot be read."""
    found: list[Delivery] = []
    unreadable: list[DeadVerdict] = []
    for head, text in sorted(
        zip(claimed.heads, claimed.envelopes, strict=True)
    ):  # the row id is unique: texts are never compared
        rank, _, row, attempt, aggregate_type, aggregate_id = head
        try:
            envelope = Envelope.from_store(text, aggregate_type, aggregate_id, PRIORITY[rank])
        except InvalidEnvelope as error:
            delivery = Delivery(stream, Envelope.unreadable(str(row), "unreadable", text), attempt, token, worker, row)
            unreadable.append(DeadVerdict(delivery, "INVALID_ENVELOPE", str(error)))
        else:
            found.append(Delivery(stream, envelope, attempt, token, worker, row))
    return found, unreadable


def type_batches(connection: sqlite3.Connection, stream: str, types: list[str] | None) -> list[list[str]]:
    """Split the types into batches for one statement each; at least one batch, for expired leases."""
    if types is None or len(types) > _FEW_TYPES:
        row = connection.execute(statement("sqlite", "claim_types"), {"stream": stream}).fetchone()
        waiting: list[str] = json.loads(row[0])
        types = waiting if types is None else sorted(set(waiting).intersection(types))
    return [types[start : start + _MAX_TYPES] for start in range(0, len(types) or 1, _MAX_TYPES)]


def _select(connection: sqlite3.Connection, types: list[str], limit: int, given: dict[str, Any]) -> ClaimedRows:
    """Return the first ``limit`` events of these types, and those whose lease has ended."""
    return _chosen(connection, _statement(len(types)), {**given, **type_parameters(types), "limit": limit})


def type_parameters(types: list[str]) -> dict[str, str]:
    """Return the parameters of :func:`claim_terms`."""
    return {f"type_{number}": name for number, name in enumerate(types)}


def _chosen(connection: sqlite3.Connection, sql: str, given: dict[str, Any]) -> ClaimedRows:
    try:
        spent, ids, heads, envelopes = connection.execute(sql, given).fetchone()
    except sqlite3.DataError:  # over a gigabyte, the limit for one value: take fewer
        if given["limit"] == 1:
            raise
        return _chosen(connection, sql, {**given, "limit": given["limit"] // 2})
    if spent:
        raise _SomeSpent
    if envelopes is None:
        return ClaimedRows([], [])
    claimed = ClaimedRows(json.loads(heads), envelopes.split(_SEPARATOR))
    if len(claimed.envelopes) == len(claimed.heads):
        return claimed
    # One of them was edited by hand and contains the separator: read them separately.
    found = dict(connection.execute(statement("sqlite", "claimed_envelopes"), {"ids": ids}).fetchall())
    return claimed._replace(envelopes=[found[head[2]] for head in claimed.heads])


def _merged(one: ClaimedRows, other: ClaimedRows, limit: int) -> ClaimedRows:
    if not one.heads:
        return other
    heads = {head[2]: (head, text) for part in (one, other) for head, text in zip(*part, strict=True)}
    first = sorted(heads.values())[:limit]
    return ClaimedRows([head for head, _ in first], [text for _, text in first])


@cache
def claim_terms(types: int) -> str:
    """Return the terms that select claimable events of so many types, each in claim order."""
    pending, expired = statement("sqlite", "claim_pending"), statement("sqlite", "claim_expired")
    parts = [
        pending.replace(":type", f":type_{number}").replace(":priority", str(rank))
        for rank in range(len(PRIORITY))
        for number in range(types)
    ]
    parts += [expired.replace(":priority", str(rank)) for rank in range(len(PRIORITY))]
    return " UNION ALL ".join(parts)


@cache
def _statement(types: int) -> str:
    return _with_spent("claim_select").replace("(TERMS", f"({claim_terms(types)}")


@cache
def _named() -> str:
    return _with_spent("claim_select").replace("(TERMS", f"({statement('sqlite', 'claim_named')}")


@cache
def _bury() -> str:
    return _with_spent("claim_bury")


def _with_spent(name: str) -> str:
    return statement("sqlite", name).replace("(SPENT)", f"({statement('sqlite', 'claim_spent')})")


_PEEK_PAGE: Final = 500  # events whose ids are looked up at once

ClaimPosition = tuple[int, float, int]  # priority, ready time, row id


def peek(
    connection: sqlite3.Connection,
    stream: str,
    limit: int,
    types: list[str] | None,
    skip: Container[str],
    now: float,
) -> list[Record]:
    """Return the first ``limit`` events that could be claimed now, without those in ``skip``."""
    given = {"stream": stream, "types": None if types is None else json.dumps(types), "now": now}
    first: set[ClaimPosition] = set()
    for batch in type_batches(connection, stream, types):
        first.update(_unskipped(connection, batch, given, limit, skip))
    ids = json.dumps([row for _, _, row in heapq.nsmallest(limit, first)])
    return [record_from_row(row) for row in connection.execute(statement("sqlite", "records"), {"ids": ids})]


def _unskipped(
    connection: sqlite3.Connection, types: list[str], given: dict[str, Any], limit: int, skip: Container[str]
) -> Iterator[ClaimPosition]:
    """Yield the positions of the first ``limit`` events of these types that are not skipped.

    The statement yields rows in order as they are fetched, so no more is read than is needed.
    """
    cursor = connection.execute(f"{claim_terms(len(types))} ORDER BY 1, 2, 3", {**given, **type_parameters(types)})
    size = min(limit, _PEEK_PAGE)
    while limit > 0 and (page := cursor.fetchmany(size)):
        ids = json.dumps([row for _, _, row in page])
        event_ids = dict(connection.execute(statement("sqlite", "peek_ids"), {"ids": ids}).fetchall())
        found = [place for place in page if event_ids[place[2]] not in skip]
        yield from found
        limit -= len(found)
        size = _PEEK_PAGE
