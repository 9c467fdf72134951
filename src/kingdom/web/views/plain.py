"""What anybody may have written into a document, made fit to be sent: what JSON or UTF-8 cannot say is replaced."""

from __future__ import annotations

import math
from typing import Any, Final

from kingdom.web.envelope import ApiError

DEEPEST: Final = 60
"""Levels of nesting. What lies below is cut off, so that whoever serialises it does not run out of stack."""


def plain_text(text: str) -> str:
    """A text without halves of characters."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def plain(value: Any, depth: int = 0) -> Any:
    """The same document, with replacements where one is needed. Markup stays what it is: text."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict | list) and depth >= DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {plain_text(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return value


def check_payload(payload: dict[str, Any]) -> None:
    """Raise :class:`ApiError` for the payload of an event that could not be given back as it came."""
    if plain(payload) != payload:
        wrong = f"NaN, half a character, or more than {DEEPEST} levels of nesting"
        raise ApiError(422, "SYS_INVALID", f"the payload holds what cannot be kept as JSON: {wrong}")
