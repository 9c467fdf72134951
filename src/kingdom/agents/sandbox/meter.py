"""What a confined run has used of its model, counted at the gateway, and what its caps leave for the next request.

A request is counted before it is passed on, with the most that its answer may use. So the sum of all answers cannot
exceed a cap, however many requests are made at once, and also when this process is killed: what is counted is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.port import Tokens
from kingdom.agents.usage import estimate

if TYPE_CHECKING:
    from kingdom.agents.port import Caps

_BYTES_PER_TOKEN: Final = 3  # of a request; text has more, so that the estimate is rather too high
_FEWEST_OUTPUT: Final = 256  # tokens; an answer that is cut to fewer is of no use
_DEFAULT_OUTPUT: Final = 32_000  # tokens, for a request that sets no limit
_LIMIT_KEYS: Final = ("max_tokens", "max_output_tokens", "max_completion_tokens")


class CapReached(Exception):
    """The caps leave nothing for a request."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a request may use at most, and the request itself, with its answer limited to that."""

    body: bytes
    model: str | None
    tokens: Tokens


class Meter:
    """The usage of one run.

    ``keep`` stores what is counted before a request is passed on, for the ``spent`` of the next process. A request that
    was cut off with its process counts in full.
    """

    def __init__(
        self,
        caps: Caps,
        spent: Mapping[str, Any] | None = None,
        keep: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._caps = caps
        self._keep = keep if caps.tokens is not None or caps.cost_usd is not None else None
        self._tokens = int((spent or {}).get("tokens", 0))
        self._cost = float((spent or {}).get("cost_usd", 0.0))
        self._reserved: list[Reservation] = []

    def reserve(self, body: bytes, *, asks: bool = True) -> Reservation:
        """Reserve what a request may use; raise :class:`CapReached`. The answer may be limited to what is left.

        A request that does not ask the model for an answer costs nothing.
        """
        if not asks:
            return Reservation(body, None, Tokens())
        document = _object(body)
        key = next((name for name in _LIMIT_KEYS if name in document), None)
        wanted = document[key] if key is not None and isinstance(document[key], int) else _DEFAULT_OUTPUT
        model = document["model"] if isinstance(document.get("model"), str) else None
        given = -(-len(body) // _BYTES_PER_TOKEN)
        allowed = min(wanted, self._output_left(model, given))
        if allowed < min(wanted, _FEWEST_OUTPUT):
            raise CapReached(self._words())
        if allowed < wanted:
            body = json.dumps({**document, key or _LIMIT_KEYS[0]: allowed}).encode()
        made = Reservation(body, model, Tokens(input=given, output=allowed))
        self._reserved.append(made)
        self._save()
        return made

    def settle(self, reservation: Reservation, used: Tokens | None) -> None:
        """Replace a reservation by what was used; None when the answer did not say, so all of it counts."""
        if reservation in self._reserved:
            self._reserved.remove(reservation)
            tokens = reservation.tokens if used is None else used
            self._tokens += tokens.total
            self._cost += estimate(reservation.model, tokens).cost_usd
            self._save()

    def _counted(self) -> tuple[int, float]:
        """Return the tokens and dollars that are used or reserved."""
        tokens = self._tokens + sum(one.tokens.total for one in self._reserved)
        return tokens, self._cost + sum(estimate(one.model, one.tokens).cost_usd for one in self._reserved)

    def _save(self) -> None:
        if self._keep is not None:
            tokens, cost = self._counted()
            self._keep({"tokens": tokens, "cost_usd": cost})

    def _output_left(self, model: str | None, given: int) -> int:
        left = _DEFAULT_OUTPUT * 1000
        tokens, cost = self._counted()
        if self._caps.tokens is not None:
            left = min(left, self._caps.tokens - tokens - given)
        if self._caps.cost_usd is not None:
            budget = self._caps.cost_usd - cost - estimate(model, Tokens(input=given)).cost_usd
            per_token = estimate(model, Tokens(output=1_000_000)).cost_usd / 1_000_000
            left = min(left, int(budget / per_token) if per_token else left)
        return left

    def _words(self) -> str:
        caps = self._caps
        limits = [f"{caps.tokens} tokens"] if caps.tokens is not None else []
        limits += [f"{caps.cost_usd:g} US dollars"] if caps.cost_usd is not None else []
        return f"the cap of this run is used up ({' or '.join(limits)})"


class UsageReader:
    """Finds the usage in an answer of a model, streamed (server-sent events) or whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._whole = b""
        self._found: Tokens | None = None

    def feed(self, data: bytes) -> None:
        """Read a part of the answer."""
        if len(self._whole) < 4_000_000:
            self._whole += data
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and b'"usage"' in line:
                self._take(_object(line[5:]))

    def result(self) -> Tokens | None:
        """Return the usage; None when the answer has none."""
        if self._found is None and b'"usage"' in self._whole:
            self._take(_object(self._whole))
        return self._found

    def _take(self, document: dict[str, Any]) -> None:
        inner = [document, document.get("message"), document.get("response")]
        for usage in (one["usage"] for one in inner if isinstance(one, dict) and isinstance(one.get("usage"), dict)):
            cached = usage.get("input_tokens_details")
            read = _count(cached, "cached_tokens") if isinstance(cached, dict) else 0
            now = Tokens(
                input=max(0, _count(usage, "input_tokens") - read),
                output=_count(usage, "output_tokens"),
                cache_read=_count(usage, "cache_read_input_tokens") + read,
                cache_write=_count(usage, "cache_creation_input_tokens"),
            )
            before = self._found or Tokens()
            # The last event of a stream may repeat only the output.
            self._found = replace(
                now,
                input=now.input or before.input,
                output=max(now.output, before.output),
                cache_read=now.cache_read or before.cache_read,
                cache_write=now.cache_write or before.cache_write,
            )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and value > 0 else 0
