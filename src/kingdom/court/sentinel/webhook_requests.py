"""The request of a webhook: its secret, its id, and its body."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.errors import CourtError

if TYPE_CHECKING:
    from kingdom.court.models import Event

_DELIVERY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,99}\Z")
_BEARER: Final = re.compile(r"\s*bearer\s+(?P<token>\S.*?)\s*\Z", re.IGNORECASE)


class WebhookRefused(CourtError):
    """A request that cannot be accepted; ``status`` is the HTTP status to answer with."""

    code = "WEBHOOK_REFUSED"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ParsedWebhook:
    """The content of a webhook."""

    delivery: str
    """Its id, which is the same when it is delivered again."""
    hint: dict[str, Any] | None = None
    """What to read, for a source that is polled."""
    events: list[Event] = field(default_factory=list)
    """What happened, for a source that is not polled."""
    unpolled: list[Event] = field(default_factory=list)
    """What happened that polling does not find."""


def check_token(given: str | None, expected: str) -> None:
    """Raise :class:`WebhookRefused` unless the token is right. The comparison takes constant time."""
    if not expected or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the token is missing or wrong", 401)


def check_signature(given: str | None, body: bytes, secret: str) -> None:
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not secret or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the signature is missing or wrong: both sides must use the same secret", 401)


def delivery_id(given: str | None, body: bytes) -> str:
    return given if given is not None and is_delivery_id(given) else hashlib.sha256(body).hexdigest()[:32]


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a webhook sends. Raises :class:`WebhookRefused` for anything else."""
    try:
        document = json.loads(body, parse_constant=_reject_number, parse_float=_finite)
    except _NotANumber as error:
        raise WebhookRefused(f"the body contains {error}, which is not a number in JSON", 400) from None
    except (ValueError, RecursionError):
        raise WebhookRefused("the body is not JSON (choose application/json as the content type)", 400) from None
    if not isinstance(document, dict):
        raise WebhookRefused("the body must be a JSON object", 400)
    return document


class _NotANumber(Exception):
    """NaN or an infinite number: Python reads it, other readers of our documents do not."""


def _reject_number(text: str) -> float:
    raise _NotANumber(text)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject_number(text[:40])


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the token of ``X-Kingdom-Token`` or ``Authorization: Bearer``. The scheme may be written in any case."""
    found = _BEARER.match(headers.get("authorization", ""))
    return headers.get("x-kingdom-token") or (found["token"] if found else None)


def is_delivery_id(value: str) -> bool:
    return _DELIVERY_ID.match(value) is not None


def lower_keys(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
