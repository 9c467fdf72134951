"""JSON text, made and read fast: on the path of every publish and every claim.

``json.JSONEncoder.encode`` makes a new encoder for each call. Here one is made once, where CPython's own is there; an
object it refuses is given to ``encode``, whose errors say more (a circular reference, for one). ``json.loads`` looks
for white space around the text, which ours has none of; where the scanner alone does not get through, it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder as _json
from json.scanner import make_scanner
from typing import Any, Final, cast

_careful: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
quoted: Final[Callable[[str], str]] = _json.encode_basestring
"""A text as JSON writes it."""


def encode(value: Any) -> str:
    """Return ``value`` as compact JSON; raise TypeError, ValueError or RecursionError where it is none."""
    try:
        return "".join(_chunks(value, 0))
    except (TypeError, ValueError, RecursionError):
        return _careful.encode(value)


def decode(text: str) -> Any:
    """Return what a JSON text says; raise ValueError or RecursionError where it is none."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    return value if end == len(text) else json.loads(text)


def _make_chunks() -> Callable[[Any, int], Any]:
    make = getattr(_json, "c_make_encoder", None)
    if make is None:
        return lambda value, _: (_careful.encode(value),)
    chunks: Callable[[Any, int], Any] = make(
        None, _careful.default, quoted, None, _careful.key_separator, _careful.item_separator, False, False, False
    )
    return chunks


_chunks: Final = _make_chunks()
_scan: Final[Callable[[str, int], tuple[Any, int]]] = make_scanner(cast("Any", json.JSONDecoder()))
