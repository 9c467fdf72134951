"""Encode and decode JSON fast: on the path of every publish and every claim.

``json.JSONEncoder.encode`` creates a new C encoder for each call. Here one is created once, if CPython has it. A
value that it refuses goes to ``encode``, whose errors say more, such as a circular reference. ``json.loads`` looks for
white space around the text, which ours does not have. If the scanner alone fails, ``json.loads`` is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder as _json
from json.scanner import make_scanner
from typing import Any, Final, cast

_encoder: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
quoted: Final[Callable[[str], str]] = _json.encode_basestring
"""Return a string as a JSON string."""


def encode(value: Any) -> str:
    """Encode ``value`` as compact JSON. Raises TypeError, ValueError or RecursionError."""
    try:
        return "".join(_chunks(value, 0))
    except (TypeError, ValueError, RecursionError):
        return _encoder.encode(value)


def decode(text: str) -> Any:
    """Decode a JSON text. Raises ValueError or RecursionError."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    return value if end == len(text) else json.loads(text)


def _make_chunks() -> Callable[[Any, int], Any]:
    make = getattr(_json, "c_make_encoder", None)
    if make is None:
        return lambda value, _: (_encoder.encode(value),)
    chunks: Callable[[Any, int], Any] = make(
        None,
        _encoder.default,
        quoted,
        None,
        _encoder.key_separator,
        _encoder.item_separator,
        False,
        False,
        False,
    )
    return chunks


_chunks: Final = _make_chunks()
_scan: Final[Callable[[str, int], tuple[Any, int]]] = make_scanner(cast("Any", json.JSONDecoder()))
