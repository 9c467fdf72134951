"""Claiming: what one transaction does, and how rows become deliveries."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kingdom.bus.delivery import DeadVerdict, Delivery
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.outbox import PRIORITY, statement

_SEPARATOR: Final = "\x1e"  # as in claim_select.sql


class Claim(NamedTuple):
    """What one call asks for."""

    stream: str
    worker: str
    limit: int
    lease: float
    types: str | None  # as JSON
    max_attempts: int
    token: str  # no other claim has it


class Claimed(NamedTuple):
    """What it got: heads (priority, ready time, row id, attempt, aggregate) and, in the same order, envelopes."""

    heads: str
    envelopes: list[str]


def new_claim(
    stream: str, worker: str, limit: int, lease: float, types: Sequence[str] | None, max_attempts: int
) -> Claim:
    """A claim under a token of its own."""
    wanted = None if types is None else json.dumps(list(types))
    return Claim(stream, worker, limit, lease, wanted, max_attempts, f"{worker}/{secrets.token_hex(8)}")


def take(connection: sqlite3.Connection, claim: Claim, now: float) -> Claimed | None:
    """Bury what is spent and hold what can be claimed. Writes nothing when there is nothing."""
    given = {
        "stream": claim.stream,
        "types": claim.types,
        "now": now,
        "limit": claim.limit,
        "max_attempts": claim.max_attempts,
    }
    connection.execute(statement("sqlite", "claim_bury"), given)
    try:
        ids, heads, envelopes = connection.execute(statement("sqlite", "claim_select"), given).fetchone()
    except sqlite3.DataError:  # more than SQLite puts into one value (a gigabyte): take fewer
        if claim.limit == 1:
            raise
        return take(connection, claim._replace(limit=claim.limit // 2), now)
    if envelopes is None:
        return None
    held = {"ids": ids, "token": claim.token, "now": now, "lease": claim.lease}
    connection.execute(statement("sqlite", "claim_hold"), held)
    texts = envelopes.split(_SEPARATOR)
    if len(texts) != ids.count(",") + 1:  # one of them was edited by hand: read them one by one
        order = {row: place for place, row in enumerate(json.loads(ids))}
        found = connection.execute(statement("sqlite", "claimed_envelopes"), held).fetchall()
        texts = [text for _, text in sorted(found, key=lambda item: order[item[0]])]
    return Claimed(heads, texts)


def deliveries(claim: Claim, claimed: Claimed) -> tuple[list[Delivery], list[DeadVerdict]]:
    """Turn what was claimed into deliveries, the first in line first; and give up what cannot be read."""
    found: list[Delivery] = []
    unreadable: list[DeadVerdict] = []
    stream, worker, token = claim.stream, claim.worker, claim.token
    heads: list[list[Any]] = json.loads(claimed.heads)
    for head, text in sorted(zip(heads, claimed.envelopes, strict=True), key=_place):
        rank, _, row, attempt, aggregate_type, aggregate_id = head
        try:
            envelope = Envelope.from_store(text, aggregate_type, aggregate_id, PRIORITY[rank])
        except InvalidEnvelope as error:
            delivery = Delivery(stream, Envelope.unreadable(str(row), "unreadable", text), attempt, token, worker, row)
            unreadable.append(DeadVerdict(delivery, "INVALID_ENVELOPE", str(error)))
        else:
            found.append(Delivery(stream, envelope, attempt, token, worker, row))
    return found, unreadable


def _place(item: tuple[list[Any], str]) -> list[Any]:
    return item[0][:3]
