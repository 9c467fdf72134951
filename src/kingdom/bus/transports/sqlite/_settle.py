"""Verdicts, renewals and releases: each for those deliveries only whose token still holds the event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kingdom.bus.outbox import statement
from kingdom.bus.transports.sqlite._operate import options
from kingdom.bus.transports.sqlite._writer import Again

if TYPE_CHECKING:
    import sqlite3

    from kingdom.bus.delivery import DeadVerdict, Delivery, DoneVerdict, RetryVerdict


class Outcome(NamedTuple):
    """Which deliveries were refused, and in which streams something may have become claimable."""

    lost: list[Delivery]
    wake: set[str]


class _Held:
    """What of the deliveries given is still held."""

    def __init__(self, found: list[tuple[str, str, int]]) -> None:
        self._rows: dict[str, set[int]] = {token: set(json.loads(rows)) for token, rows, _ in found}
        self.ordered = {token for token, _, ordered in found if ordered}  # the claims on an ordered stream

    def lacks(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Those of the deliveries asked for that are not held: none, as a rule, and then none is looked at."""
        held = sum(map(len, self._rows.values()))
        return [] if held == len(deliveries) else [item for item in deliveries if item not in self]

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery.handle in self._rows.get(delivery.token, ())


class Settle:
    """Writes verdicts."""

    def __init__(self, done: Sequence[DoneVerdict], retry: Sequence[RetryVerdict], dead: Sequence[DeadVerdict]) -> None:
        self._done = done
        self._retry = retry
        self._dead = dead
        self._simple = not retry and not dead and all(verdict.outcome is None for verdict in done)

    def __call__(self, connection: sqlite3.Connection, now: float) -> Outcome:
        """Write them. Nearly always all are DONE and all are held still: then nothing is asked first."""
        if self._simple:
            self._simple = False  # for when it turns out otherwise
            return _all_done(connection, now, [verdict.delivery for verdict in self._done])
        return _settle(connection, now, self._done, self._retry, self._dead)


def _all_done(connection: sqlite3.Connection, now: float, deliveries: list[Delivery]) -> Outcome:
    """End deliveries if each is held still. If not, nobody can tell which was: raises :class:`Again`."""
    before = connection.total_changes
    ended = _end(connection, now, deliveries)
    if ended != len(deliveries):
        raise Again(f"{len(deliveries) - ended} deliveries are not held any more, or there twice")
    # In an ordered stream the end of one event is the beginning of the next of its aggregate: triggers have changed it.
    freed = connection.total_changes - before > ended
    return Outcome([], {delivery.stream for delivery in deliveries} if freed else set())


def _settle(
    connection: sqlite3.Connection,
    now: float,
    done: Sequence[DoneVerdict],
    retry: Sequence[RetryVerdict],
    dead: Sequence[DeadVerdict],
) -> Outcome:
    """Write verdicts of any kind. Of several on one delivery the first counts."""
    deliveries = [verdict.delivery for verdicts in (done, retry, dead) for verdict in verdicts]
    for stream, outcome in {(v.delivery.stream, v.outcome) for v in done if v.outcome is not None}:
        options(connection, stream).check_outcome(stream, outcome)
    held = _held(connection, deliveries)
    lost = held.lacks(deliveries)
    if done:
        _end(connection, now, [v.delivery for v in done if v.outcome is None and v.delivery in held])
        named = [(v.delivery.handle, v.outcome) for v in done if v.outcome is not None and v.delivery in held]
        _update(connection, "settle_outcome", now, verdicts=named)
    if retry:
        again = [(v.delivery.handle, v.after, _clean(v.code), _clean(v.message)) for v in retry if v.delivery in held]
        _update(connection, "settle_retry", now, verdicts=again)
    if dead:
        ended = [(v.delivery.handle, _clean(v.code), _clean(v.message)) for v in dead if v.delivery in held]
        _update(connection, "settle_dead", now, verdicts=ended)
    wake = {verdict.delivery.stream for verdict in retry if verdict.after <= 0}
    # In an ordered stream the end of one event is the beginning of the next of its aggregate.
    if held.ordered:
        wake.update(delivery.stream for delivery in deliveries if delivery.token in held.ordered)
    return Outcome(lost, wake)


def _end(connection: sqlite3.Connection, now: float, deliveries: Iterable[Delivery]) -> int:
    """Make DONE what is held of these; return how many that were."""
    ended = 0
    for token, rows in _by_token(deliveries).items():
        given = {"now": now, "token": token, "ids": json.dumps(rows)}
        ended += connection.execute(statement("sqlite", "settle_done"), given).rowcount
    return ended


def extend(connection: sqlite3.Connection, now: float, deliveries: Sequence[Delivery], lease: float) -> Outcome:
    """Let leases end ``lease`` seconds from now."""
    held = _held(connection, deliveries)
    _update(connection, "extend", now, ids=[item.handle for item in deliveries if item in held], lease=lease)
    return Outcome(held.lacks(deliveries), set())


def release(connection: sqlite3.Connection, now: float, deliveries: Sequence[Delivery]) -> Outcome:
    """Give events back as if they had not been claimed."""
    held = _held(connection, deliveries)
    given_back = [delivery for delivery in deliveries if delivery in held]
    _update(connection, "release", now, ids=[delivery.handle for delivery in given_back])
    return Outcome(held.lacks(deliveries), {item.stream for item in given_back})


def _held(connection: sqlite3.Connection, deliveries: Iterable[Delivery]) -> _Held:
    claims = json.dumps(_by_token(deliveries))
    return _Held(connection.execute(statement("sqlite", "held"), {"claims": claims}).fetchall())


def _by_token(deliveries: Iterable[Delivery]) -> dict[str, list[int]]:
    """The rows of deliveries by the claim they are held under."""
    claims: dict[str, list[int]] = {}
    for delivery in deliveries:
        claims.setdefault(delivery.token, []).append(delivery.handle)
    return claims


def _update(connection: sqlite3.Connection, name: str, now: float, **given: Any) -> None:
    """Run a statement on the rows given, if there are any; lists travel as JSON."""
    packed = {key: json.dumps(value) if isinstance(value, list) else value for key, value in given.items()}
    if "[]" not in packed.values():
        connection.execute(statement("sqlite", name), {"now": now, **packed})


def _clean(text: str | None) -> str | None:
    """Text that can be stored: error messages may hold anything, half characters of foreign encodings included."""
    return None if text is None else text.replace("\0", "").encode("utf-8", "replace").decode()
