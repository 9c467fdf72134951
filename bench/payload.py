"""The event that all carry: a JSON object of 300 bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

STREAM: Final = "bench.event"
TYPE: Final = "OrderAccepted"
SIZE: Final = 300


def payload(number: int, size: int = SIZE) -> dict[str, Any]:
    """Payload number ``number``; compact JSON of exactly ``size`` bytes."""
    document: dict[str, Any] = {"orderAttemptId": number, "market": "KRW-BTC", "note": ""}
    document["note"] = "x" * (size - len(encode(document)))
    return document


def payloads(count: int) -> list[dict[str, Any]]:
    """The first ``count`` payloads; made before the clock starts, since they are the caller's own work."""
    return [payload(number) for number in range(count)]


def chunks(items: list[T], size: int) -> Iterator[list[T]]:
    """The items, ``size`` at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


def encode(document: dict[str, Any]) -> str:
    """Compact JSON, as a careful hand would store it."""
    return json.dumps(document, separators=(",", ":"))
