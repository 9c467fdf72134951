"""Say in words which form a text must have, instead of showing people a regular expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FORMS: Final[dict[str, str]] = {}
_OTHERWISE: Final = "has characters, or a form, that are not allowed here"


def form(pattern: str, words: str) -> str:
    """Return ``pattern``, and remember what it means: ``form(r"^#\\w+$", "a # and a word, such as #court")``."""
    _FORMS[pattern] = words
    return pattern


def problem_text(error: Mapping[str, Any]) -> str:
    """Return the message of one error of a pydantic ``ValidationError``, without regular expressions."""
    if error.get("type") != "string_pattern_mismatch":
        return str(error.get("msg"))
    words = _FORMS.get(str((error.get("ctx") or {}).get("pattern")))
    return _OTHERWISE if words is None else f"must be {words}"
