"""The state machine of the trading example's order attempts."""

from __future__ import annotations

import re
from itertools import product

import pytest

from examples.trading.states import FINAL, TRANSITIONS, IllegalTransition, Status, check_transition
from examples.trading.store import SCHEMA

LEGAL = {
    ("PREPARED", "SENT"),
    ("PREPARED", "SUSPENDED"),
    ("SUSPENDED", "PREPARED"),
    ("SENT", "ACKED"),
    ("SENT", "REJECTED"),
    ("SENT", "THROTTLED"),
    ("SENT", "UNKNOWN"),
    ("UNKNOWN", "ACKED"),
    ("UNKNOWN", "REJECTED"),
    ("UNKNOWN", "THROTTLED"),
}


@pytest.mark.parametrize(("now", "wanted"), list(product(Status, Status)))
def test_every_pair_of_states_is_allowed_or_raises(now: Status, wanted: Status) -> None:
    if (now, wanted) in LEGAL:
        check_transition(7, now, wanted)
        return
    with pytest.raises(IllegalTransition, match=f"order attempt 7 is {now} and cannot become {wanted}") as caught:
        check_transition(7, now, wanted)
    assert (caught.value.now, caught.value.wanted) == (now, wanted)


def test_what_was_sent_is_never_sent_again() -> None:
    reachable = {Status.SENT}
    while True:
        further = reachable.union(*(TRANSITIONS[status] for status in reachable))
        if further == reachable:
            break
        reachable = further
    assert Status.PREPARED not in reachable
    assert all(Status.SENT not in TRANSITIONS[status] for status in reachable)


def test_the_states_an_order_ends_in() -> None:
    assert {Status.ACKED, Status.REJECTED, Status.THROTTLED} == FINAL
    with pytest.raises(IllegalTransition, match="it is final"):
        check_transition(1, Status.ACKED, Status.REJECTED)


def test_the_table_knows_the_same_states() -> None:
    check = re.search(r"status\s+text NOT NULL DEFAULT 'PREPARED' CHECK \(status IN\s+\(([^)]*)\)", SCHEMA.read_text())
    assert check is not None
    assert set(re.findall(r"'(\w+)'", check.group(1))) == set(Status)
