"""Lines no program should print, for the readers of agents' output."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.support.searching import examples

# The machine may be busy, and how long a value takes to make says nothing about us.
any_pace = settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def json_values() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    )


def objects(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with those names and any values."""
    return st.dictionaries(st.sampled_from(names), json_values(), max_size=6)


def lines(names: list[str]) -> st.SearchStrategy[list[bytes]]:
    """A few lines, some of them JSON with those names."""
    return st.lists(st.binary(max_size=100) | objects(names).map(lambda made: json.dumps(made).encode()), max_size=5)
