"""Claiming: what one transaction does, and how rows become deliveries."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from kingdom.bus.delivery import DeadVerdict, Delivery
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY, statement

_SEPARATOR: Final = "\x1e"  # as in claim_select.sql
_FEW: Final = 16  # types that are looked up one by one rather than finding out first which of them there are
_MOST: Final = 100  # types in one statement; SQLite allows 500 terms, and a type is three of them


class Claim(NamedTuple):
    """What one call asks for."""

    stream: str
    worker: str
    limit: int
    lease: float
    types: list[str] | None
    max_attempts: int
    token: str  # no other claim has it


class Claimed(NamedTuple):
    """What it got: heads (priority, ready time, row id, attempt, aggregate) and, in the same order, envelopes."""

    heads: list[list[Any]]
    envelopes: list[str]


def new_claim(
    stream: str, worker: str, limit: int, lease: float, types: Sequence[str] | None, max_attempts: int
) -> Claim:
    """A claim under a token of its own."""
    wanted = None if types is None else sorted(set(types))
    return Claim(stream, worker, limit, lease, wanted, max_attempts, f"{worker}/{secrets.token_hex(8)}")


def take(connection: sqlite3.Connection, claim: Claim, now: float) -> Claimed | None:
    """Bury what is spent and hold what can be claimed. Writes nothing when there is nothing."""
    given = {
        "stream": claim.stream,
        "types": None if claim.types is None else json.dumps(claim.types),
        "now": now,
        "max_attempts": claim.max_attempts,
    }
    while connection.execute(statement("sqlite", "claim_bury"), given).rowcount:
        pass  # in an ordered stream, the follower of what was buried may be spent as well
    types = _types(connection, claim)
    found = Claimed([], [])
    for start in range(0, len(types) or 1, _MOST):
        found = _merged(found, _select(connection, types[start : start + _MOST], claim.limit, given), claim.limit)
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


def deliveries(claim: Claim, claimed: Claimed) -> tuple[list[Delivery], list[DeadVerdict]]:
    """Turn what was claimed into deliveries, the first in line first; and give up what cannot be read."""
    found: list[Delivery] = []
    unreadable: list[DeadVerdict] = []
    stream, worker, token = claim.stream, claim.worker, claim.token
    for head, text in sorted(zip(claimed.heads, claimed.envelopes, strict=True), key=_place):
        rank, _, row, attempt, aggregate_type, aggregate_id = head
        try:
            envelope = Envelope.from_store(text, aggregate_type, aggregate_id, PRIORITY[rank])
        except InvalidEnvelope as error:
            delivery = Delivery(stream, Envelope.unreadable(str(row), "unreadable", text), attempt, token, worker, row)
            unreadable.append(DeadVerdict(delivery, "INVALID_ENVELOPE", str(error)))
        else:
            found.append(Delivery(stream, envelope, attempt, token, worker, row))
    return found, unreadable


def _types(connection: sqlite3.Connection, claim: Claim) -> list[str]:
    """The types to look for."""
    if claim.types is not None and len(claim.types) <= _FEW:
        return claim.types
    row = connection.execute(statement("sqlite", "claim_types"), {"stream": claim.stream}).fetchone()
    waiting: list[str] = json.loads(row[0])
    return waiting if claim.types is None else sorted(set(waiting).intersection(claim.types))


def _select(connection: sqlite3.Connection, types: list[str], limit: int, given: dict[str, Any]) -> Claimed:
    """The first ``limit`` events of these types, and those whose lease ended."""
    params = {**given, "limit": limit}
    for number, name in enumerate(types):
        params[f"type_{number}"] = name
    try:
        ids, heads, envelopes = connection.execute(_statement(len(types)), params).fetchone()
    except sqlite3.DataError:  # more than SQLite puts into one value (a gigabyte): take fewer
        if limit == 1:
            raise
        return _select(connection, types, limit // 2, given)
    if envelopes is None:
        return Claimed([], [])
    claimed = Claimed(json.loads(heads), envelopes.split(_SEPARATOR))
    if len(claimed.envelopes) == len(claimed.heads):
        return claimed
    # One of them was edited by hand and contains the separator: read them one by one.
    found = dict(connection.execute(statement("sqlite", "claimed_envelopes"), {"ids": ids}).fetchall())
    return claimed._replace(envelopes=[found[head[2]] for head in claimed.heads])


def _merged(one: Claimed, other: Claimed, limit: int) -> Claimed:
    if not one.heads:
        return other
    heads = {head[2]: (head, text) for part in (one, other) for head, text in zip(*part, strict=True)}
    first = sorted(heads.values(), key=_place)[:limit]
    return Claimed([head for head, _ in first], [text for _, text in first])


@cache
def _statement(types: int) -> str:
    pending, expired = statement("sqlite", "claim_pending"), statement("sqlite", "claim_expired")
    terms = [
        pending.replace(":type", f":type_{number}").replace(":priority", str(rank))
        for rank in range(len(PRIORITY))
        for number in range(types)
    ]
    terms += [expired.replace(":priority", str(rank)) for rank in range(len(PRIORITY))]
    return statement("sqlite", "claim_select").replace("(TERMS", f"({' UNION ALL '.join(terms)}")


def _place(item: tuple[list[Any], str]) -> list[Any]:
    return item[0][:3]
