"""The state machine of an order attempt.

::

                ┌──────────► SUSPENDED          kill switch
                │               │
                │   ◄───────────┘               released
             PREPARED
                │
                ▼
               SENT ──► ACKED | REJECTED | THROTTLED
                │               ▲
                ▼               │
             UNKNOWN ───────────┘               the reconciler asked, or a late answer came
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """The status of an order attempt."""

    PREPARED = "PREPARED"  # to be sent
    SUSPENDED = "SUSPENDED"  # held back by the kill switch
    SENT = "SENT"  # about to be sent, or sent; no answer recorded yet
    UNKNOWN = "UNKNOWN"  # sent without a clear answer: the exchange may or may not have the order
    ACKED = "ACKED"  # the exchange has the order
    REJECTED = "REJECTED"  # the exchange does not have it and will not take it under this identifier
    THROTTLED = "THROTTLED"  # the exchange was too busy to take it; the next attempt follows


TRANSITIONS: Final[dict[Status, frozenset[Status]]] = {
    Status.PREPARED: frozenset({Status.SENT, Status.SUSPENDED}),
    Status.SUSPENDED: frozenset({Status.PREPARED}),
    Status.SENT: frozenset({Status.ACKED, Status.REJECTED, Status.THROTTLED, Status.UNKNOWN}),
    Status.UNKNOWN: frozenset({Status.ACKED, Status.REJECTED, Status.THROTTLED}),
    Status.ACKED: frozenset(),
    Status.REJECTED: frozenset(),
    Status.THROTTLED: frozenset(),
}

FINAL: Final = frozenset(status for status, following in TRANSITIONS.items() if not following)


class IllegalTransition(Exception):
    """The state machine does not allow this change of an order attempt."""

    def __init__(self, attempt_id: int, now: Status, wanted: Status) -> None:
        allowed = ", ".join(sorted(TRANSITIONS[now])) or "nothing: it is final"
        super().__init__(f"order attempt {attempt_id} is {now} and cannot become {wanted}; allowed: {allowed}")
        self.attempt_id = attempt_id
        self.now = now
        self.wanted = wanted


def check_transition(attempt_id: int, now: Status, wanted: Status) -> None:
    """Raise :class:`IllegalTransition` unless an attempt may go from ``now`` to ``wanted``."""
    if wanted not in TRANSITIONS[now]:
        raise IllegalTransition(attempt_id, now, wanted)
