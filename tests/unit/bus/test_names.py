from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kingdom.bus import BusError, InvalidName
from kingdom.bus.envelope import check_event_id, check_stream, check_worker

CHECKS = [(check_event_id, "event id", 200), (check_stream, "stream name", 100), (check_worker, "worker name", 200)]
Check = Callable[[str], str]


@pytest.mark.parametrize(("check", "what", "limit"), CHECKS)
def test_an_allowed_name_is_returned(check: Check, what: str, limit: int) -> None:
    for name in (
        "a",
        "everbit.trade.command",
        "evt-github-1@2026-02-17T00:00:00+09",
        "_",
        "-",
        ":",
        "A.b",
        "x" * limit,
    ):
        assert check(name) == name


@pytest.mark.parametrize(("check", "what", "limit"), CHECKS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        (".hidden", "it starts with a dot"),
        ("..", "it starts with a dot"),
        ("a/b", "'/' at position 1 is not allowed"),
        ("../../etc", "it starts with a dot"),
        ("a b", "' ' at position 1 is not allowed"),
        ("abc\n", "'\\n' at position 3 is not allowed"),
        ("a\0", "'\\x00' at position 1 is not allowed"),
        ("größe", "'ö' at position 2 is not allowed"),
        ("１２", "'１' at position 0 is not allowed"),
        (7, "it must be a string, not int"),
        (None, "it must be a string, not NoneType"),
        (b"abc", "it must be a string, not bytes"),
    ],
)
def test_a_bad_name_is_refused_with_the_reason_and_the_rule(
    check: Check, what: str, limit: int, name: Any, reason: str
) -> None:
    with pytest.raises(InvalidName) as refused:
        check(name)
    message = str(refused.value)
    assert message.startswith(what)
    assert reason in message
    assert message.endswith("use A-Z a-z 0-9 . _ : @ + - and do not start with a dot")


@pytest.mark.parametrize(("check", "what", "limit"), CHECKS)
def test_a_name_that_is_too_long_is_refused_and_not_repeated_in_full(check: Check, what: str, limit: int) -> None:
    with pytest.raises(InvalidName, match=f"it is longer than {limit} bytes") as refused:
        check("x" * (limit + 1))
    assert "x" * 61 not in str(refused.value)


def test_length_is_counted_in_bytes() -> None:
    with pytest.raises(InvalidName, match="it is longer than 100 bytes"):
        check_stream("왕" * 40)


def test_a_bad_name_is_a_value_error_and_a_bus_error() -> None:
    assert issubclass(InvalidName, ValueError)
    assert issubclass(InvalidName, BusError)
