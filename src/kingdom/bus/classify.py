"""Which errors are worth another try.

Network trouble, time-outs, HTTP 5xx, 408, 425 and 429 are; other HTTP 4xx, validation errors and refused permissions
are not: the same event would fail the same way. What nobody can judge is retried until the attempts are spent. A
worker's ``classify=`` hook is asked first and may say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from kingdom.bus.errors import Reject, Retry

Fate = Literal["retry", "dead"]
Classifier = Callable[[BaseException], "Fate | None"]

_RETRYABLE_4XX = frozenset({408, 425, 429})


class Failure(NamedTuple):
    """What a handler's exception means for its event."""

    fate: Fate
    code: str
    message: str
    after: float | None = None  # seconds, when the error itself says how long to wait


def judge(error: BaseException, hook: Classifier | None = None) -> Failure:
    """Turn a handler's exception into a verdict."""
    if isinstance(error, Retry):
        return Failure("retry", error.code, str(error), error.after)
    if isinstance(error, Reject):
        return Failure("dead", error.code, error.why)
    status = http_status(error)
    code = f"HTTP_{status}" if status else type(error).__name__
    message = str(error) or type(error).__name__
    fate = (hook and hook(error)) or ("dead" if is_permanent(error) else "retry")
    return Failure(fate, code, message, retry_after(error) if fate == "retry" else None)


def is_permanent(error: BaseException) -> bool:
    """Whether trying again is pointless."""
    status = http_status(error)
    if status is not None:
        return 400 <= status < 500 and status not in _RETRYABLE_4XX
    if isinstance(error, PermissionError):
        return True
    # Validation libraries share no base class, but they do share the name (pydantic, marshmallow, jsonschema, Django).
    return any(base.__name__ == "ValidationError" for base in type(error).__mro__)


def http_status(error: BaseException) -> int | None:
    """The HTTP status an exception carries, whichever client raised it (httpx, requests, aiohttp, urllib)."""
    response = getattr(error, "response", None)
    for holder, name in (
        (response, "status_code"),
        (response, "status"),
        (error, "status_code"),
        (error, "status"),
    ):
        value = getattr(holder, name, None)
        if isinstance(value, int) and 100 <= value < 600:
            return value
    value = getattr(error, "code", None)
    if hasattr(error, "headers") and isinstance(value, int) and 100 <= value < 600:  # urllib.error.HTTPError
        return value
    return None


def retry_after(error: BaseException) -> float | None:
    """Seconds of a ``Retry-After`` header, when the error carries one in seconds."""
    holder = getattr(error, "response", None) or error
    headers = getattr(holder, "headers", None)
    value = headers.get("Retry-After") if headers is not None and hasattr(headers, "get") else None
    try:
        seconds = float(value) if value is not None else None
    except (TypeError, ValueError):
        return None  # a date: the policy's own delay will do
    return seconds if seconds is not None and 0 <= seconds < 86_400 else None
