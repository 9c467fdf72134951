"""Encode and decode JSON fast: on the path of every publish and every claim.

``json.JSONEncoder.encode`` creates a new C encoder for each call. Here one is created once, if CPython has it. A
value that it refuses goes to ``encode``, whose errors say more, such as a circular reference. ``json.loads`` looks for
white space around the text, which ours does not have. If the scanner alone fails, ``json.loads`` is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json import encoder as _json
from json.scanner import make_scanner

TYPE_CHECKING = False  # not the one of typing: importing that would take a fifth of the start of a shim
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

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
_decoder: Any = json.JSONDecoder()
_scan: Final[Callable[[str, int], tuple[Any, int]]] = make_scanner(_decoder)


_MAX_DEPTH: Final = 20  # deeper values stay on one line
_MAX_CHARS: Final = 65_536  # longer values, too: formatting them costs more than anybody would read
_MAX_LIST_CHARS: Final = 100  # a shorter list of values of one line each stays on one line
_WITHOUT_KEYS: Final = (list, float)  # are no mappings: asking takes longer than formatting a number
_CONSTANTS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: repr,
}


def pretty(
    document: Mapping[str, Any], encode: Callable[[Any], str] = encode, quote: Callable[[str], str] = quoted
) -> str:
    """Format a document as people write JSON: two spaces, a line for each field, ``{}`` for an empty object.

    ``encode`` encodes whatever is too long or too deep to be formatted, and plain values; ``quote`` encodes strings.
    """
    return _pretty(document, encode, quote, "\n", 0) + "\n"


def _pretty(value: Any, encode: Callable[[Any], str], quote: Callable[[str], str], indent: str, depth: int) -> str:
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind in _CONSTANTS:
        return _CONSTANTS[kind](value)
    keyed = kind is dict or (kind not in _WITHOUT_KEYS and isinstance(value, Mapping))
    if not value or not (keyed or isinstance(value, (list, tuple))):
        return encode(value)
    if depth and (depth > _MAX_DEPTH or (depth == 1 and len(value) > 5 and len(encode(value)) > _MAX_CHARS)):
        return encode(value)
    inner = f"{indent}  "
    # Strings, most of a document, are encoded here: a call for each would take twice as long.
    parts = [
        quote(item) if type(item) is str else _pretty(item, encode, quote, inner, depth + 1)
        for item in (value.values() if keyed else value)
    ]
    if not keyed:
        if sum(map(len, parts)) + 2 * len(parts) <= _MAX_LIST_CHARS and not any("\n" in part for part in parts):
            return f"[{', '.join(parts)}]"
        return f"[{inner}{f',{inner}'.join(parts)}{indent}]"
    fields = [f"{quote(str(key))}: {part}" for key, part in zip(value, parts, strict=True)]
    return f"{{{inner}{f',{inner}'.join(fields)}{indent}}}"
