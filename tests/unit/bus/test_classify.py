from __future__ import annotations

import email.message
import io
import urllib.error
from types import SimpleNamespace
from typing import Any

import pytest

from kingdom.bus import Reject, Retry
from kingdom.bus.handlers import classify_failure, http_status, is_permanent, retry_after


class ClientError(Exception):
    """An error as HTTP clients raise it: with the response, or with the status itself."""

    def __init__(self, **fields: Any) -> None:
        super().__init__("the exchange said no")
        self.__dict__.update(fields)


def httpx_like(status: int, **headers: str) -> ClientError:
    return ClientError(response=SimpleNamespace(status_code=status, headers=headers))


def urllib_error(status: int) -> urllib.error.HTTPError:
    headers = email.message.Message()
    headers["Retry-After"] = "7"
    return urllib.error.HTTPError("http://127.0.0.1", status, "no", headers, io.BytesIO())


class ValidationError(Exception):
    """Named as pydantic, marshmallow, jsonschema and Django name theirs."""


class OrderInvalid(ValidationError):
    """Derived from a validation library's."""


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("reset"),
        ConnectionRefusedError(),
        TimeoutError(),
        OSError("network unreachable"),
        RuntimeError("who knows"),
        KeyError("price"),
        ValueError("odd"),
        httpx_like(500),
        httpx_like(503),
        httpx_like(408),
        httpx_like(425),
        httpx_like(429),
        ClientError(status=502),
    ],
    ids=repr,
)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    assert classify_failure(error).fate == "retry"


@pytest.mark.parametrize(
    "error",
    [
        httpx_like(400),
        httpx_like(401),
        httpx_like(404),
        httpx_like(422),
        ClientError(response=SimpleNamespace(status=403)),
        ClientError(status=400),
        ClientError(status_code=409),
        ValidationError("price must be positive"),
        OrderInvalid(),
        PermissionError("not yours"),
    ],
    ids=repr,
)
def test_what_would_fail_the_same_way_again_is_dead_at_once(error: Exception) -> None:
    assert is_permanent(error)
    assert classify_failure(error).fate == "dead"


def test_the_standard_librarys_http_error_is_understood() -> None:
    with urllib_error(404) as not_found, urllib_error(503) as busy:
        assert (http_status(not_found), classify_failure(not_found).fate) == (404, "dead")
        assert (http_status(busy), classify_failure(busy).fate, classify_failure(busy).after) == (503, "retry", 7.0)


def test_an_error_code_that_is_no_http_status_is_none() -> None:
    assert http_status(ClientError(code=404)) is None  # no headers: some other code
    assert http_status(ClientError(status=7)) is None
    assert http_status(ClientError(status="404")) is None
    assert http_status(SystemExit(404)) is None


def test_a_handlers_own_word_is_final() -> None:
    assert classify_failure(Retry("closed", after=5, code="CLOSED")) == ("retry", "CLOSED", "closed", 5)
    assert classify_failure(Retry()) == ("retry", "RETRY", "the handler asked for a retry", None)
    assert classify_failure(Reject("INVALID", "no such market")) == ("dead", "INVALID", "no such market", None)
    never = classify_failure(Retry(), lambda _: "dead")
    assert never.fate == "retry"  # the hook is about errors, not about verdicts


def test_the_code_is_the_http_status_or_the_name_of_the_error() -> None:
    assert classify_failure(httpx_like(503)).code == "HTTP_503"
    assert classify_failure(KeyError("price")).code == "KeyError"


def test_an_error_without_a_message_is_told_by_its_name() -> None:
    assert classify_failure(TimeoutError()).message == "TimeoutError"
    assert classify_failure(RuntimeError("boom")).message == "boom"


def test_the_hook_is_asked_first_and_may_leave_it_to_us() -> None:
    assert classify_failure(RuntimeError("boom"), lambda _: "dead").fate == "dead"
    assert classify_failure(PermissionError("not yet"), lambda _: "retry").fate == "retry"
    assert classify_failure(PermissionError("not yours"), lambda _: None).fate == "dead"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("30", 30.0), ("0", 0.0), ("1.5", 1.5), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("999999", None)],
)
def test_a_retry_after_header_in_seconds_is_heeded(value: str, expected: float | None) -> None:
    error = httpx_like(429, **{"Retry-After": value})
    assert retry_after(error) == expected
    assert classify_failure(error).after == expected


def test_a_retry_after_header_says_nothing_about_what_is_dead() -> None:
    assert classify_failure(httpx_like(404, **{"Retry-After": "30"})).after is None


def test_an_error_without_headers_says_nothing_of_time() -> None:
    assert retry_after(RuntimeError()) is None
    assert retry_after(ClientError(headers="text")) is None
