"""The client of the exchange: turns each response into an outcome of the order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from examples.trading.httpio import Response, send
from examples.trading.store import Attempt


@dataclass(frozen=True, slots=True)
class Accepted:
    """The exchange has the order."""

    order_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The exchange refused the order: the same request would be refused again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Throttled:
    """The exchange did not process the order; it may be sent again after this many seconds."""

    retry_after: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The outcome is unknown: the exchange may have the order, may still receive it, or may never have seen it."""

    reason: str


Answer = Accepted | Refused | Throttled | NoAnswer

_UNDECIDED_4XX = frozenset({408, 410, 425})  # 410: the reconciler voided the identifier, so it decides


class ExchangeError(ConnectionError):
    """A query to the exchange failed; repeating it is safe."""


class ExchangeClient:
    """The exchange's API. ``timeout`` is how many seconds one request may take."""

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        self.url = url
        self.timeout = timeout

    async def place(self, attempt: Attempt) -> Answer:
        """Place the order of an attempt once. Never retries."""
        order = {
            "identifier": attempt.identifier,
            "tag": str(attempt.order_intent_id),
            "market": attempt.market,
            "side": attempt.side,
            "price": str(attempt.price),
            "volume": str(attempt.volume),
        }
        agent = {"User-Agent": f"executor/{os.getpid()}"}
        try:
            response = await send("POST", f"{self.url}/orders", order, headers=agent, within=self.timeout)
        except TimeoutError:
            return NoAnswer(f"no answer within {self.timeout:g} s")
        except OSError as error:
            return NoAnswer(f"connection lost: {error}")
        return _meaning(response)

    async def find(self, identifier: str) -> str | None:
        """Return the exchange's id of the order placed under ``identifier``, or None when there is none yet."""
        response = await self._ask("GET", identifier, expected=(200, 404))
        return str(response.body["orderId"]) if response.status == 200 else None

    async def void(self, identifier: str) -> str | None:
        """Void ``identifier`` so that it can never become an order; return the order's id when it already is one."""
        response = await self._ask("DELETE", identifier, expected=(204, 409))
        return str(response.body["orderId"]) if response.status == 409 else None

    async def _ask(self, method: str, identifier: str, expected: tuple[int, ...]) -> Response:
        try:
            response = await send(method, f"{self.url}/orders/{identifier}", within=self.timeout)
        except OSError as error:
            raise ExchangeError(f"{method} /orders/{identifier}: {error or type(error).__name__}") from error
        if response.status not in expected:
            raise ExchangeError(f"{method} /orders/{identifier}: the exchange answered {response.status}")
        return response


def _meaning(response: Response) -> Answer:
    status = response.status
    reason = f"{status} {_error(response.body)}".rstrip()
    if 200 <= status < 300:
        return Accepted(str(response.body["orderId"]))
    if status == 429:
        return Throttled(_seconds(response.headers.get("retry-after")))
    if 400 <= status < 500 and status not in _UNDECIDED_4XX:
        return Refused(reason)
    return NoAnswer(reason)


def _error(body: Any) -> str:
    return str(body.get("error", "")) if isinstance(body, dict) else ""


def _seconds(retry_after: str | None, default: float = 1.0) -> float:
    try:
        return min(max(0.0, float(retry_after or default)), 3600.0)
    except ValueError:  # a date; the default will do
        return default
