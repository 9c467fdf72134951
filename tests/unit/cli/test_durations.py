"""Spans of time as people write and read them."""

from __future__ import annotations

import pytest

from kingdom.cli.options import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("15m", 900), ("2h", 7200), ("7d", 604_800), ("0s", 0), ("1.5h", 5400), ("250ms", 0.25), (" 1s ", 1)],
)
def test_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "7w", "d", "-1s", "1h30m", "7 d", "1e3s", "٣s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 30s, 15m, 2h or 7d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.44, "0.4s"),
        (12, "12s"),
        (59.97, "59.9s"),
        (60, "1m"),
        (192.7, "3m 12s"),
        (3600, "1h"),
        (3605, "1h"),
        (100_000, "1d 3h"),
    ],
)
def test_people_read_the_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
