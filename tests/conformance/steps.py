"""What the state machine draws its steps from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kingdom.bus.envelope import PRIORITIES, Priority
from tests.conformance.model import Kind

# Between two steps time passes by a tick; everything the steps themselves wait for is much longer than all the ticks,
# and the real time, of one example. So a store with a real clock agrees with the model about what comes first.
TICK = 0.002
SPANS = st.sampled_from([100, 200, 300, 500, 1000])
WAITS = st.just(0) | SPANS
TYPES = st.sampled_from(["A", "B"])
CODES = st.sampled_from(["X", "Y", "LEASE_EXPIRED"])
PICK = st.integers(0, 20)  # of what there is, counted round
PICKS = st.lists(PICK, max_size=4)
KINDS: st.SearchStrategy[Kind] = st.sampled_from(["plain", "go-on", "park"])
EVENTS = st.tuples(
    TYPES, st.sampled_from([None, "1", "2"]), st.sampled_from(PRIORITIES), st.just(0) | st.just(0) | SPANS
)
FATES = st.tuples(st.sampled_from(["keep", "done", "retry", "dead", "release", "extend"]), WAITS, CODES)
CLAIM: dict[str, Any] = {
    "limit": st.integers(1, 5),
    "lease": SPANS,
    "types": st.none() | st.none() | TYPES.map(lambda name: [name]),
    "named": st.none() | st.none() | st.lists(PICK, min_size=1, max_size=8),
    "max_attempts": st.sampled_from([10, 2, 1]),
    "fates": st.lists(FATES, min_size=1, max_size=3),
}
NewEvent = tuple[str, str | None, Priority, int]
Fate = tuple[str, int, str]
