"""Make text from outside safe to store and to display."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_MAX_NAME_WORDS: Final = 6
_MAX_NAME_CHARS: Final = 40
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_NUMBERS: Final = (int, float, bool)
_INVISIBLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")


def storable(value: Any) -> Any:
    """Copy a JSON value without the characters that queues refuse: NUL and lone surrogates."""
    if isinstance(value, str):
        return value if value.isascii() and "\0" not in value else _UNSTORABLE.sub("", value)
    if value is None or type(value) in _NUMBERS:
        return value
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - the test for dict is faster
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item) for item in value]
    return value


def one_line(text: str, length: int = 120) -> str:
    """Join a text to one line of at most ``length`` characters, without control and invisible characters."""
    flat = " ".join(_INVISIBLE.sub(" ", text[: 10 * length]).split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def name_of_text(text: str) -> str:
    """Make a short name from the first words of a text: ``add-a-json-flag``; empty if it has no letter or digit."""
    words = re.sub(r"[\W_]+", "-", text.strip().partition("\n")[0]).strip("-").lower().split("-")
    return "-".join(words[:_MAX_NAME_WORDS])[:_MAX_NAME_CHARS].strip("-")


_SECRET: Final = re.compile(
    r"xox[a-z]-|xapp-\d|gh[pousr]_\w{16}|github_pat_\w{16}|glpat-\w|sk-[\w-]{16}|ATATT3\w|AKIA[0-9A-Z]{16}"
    r"|AIza[\w-]{30}|-----BEGIN [A-Z ]*PRIVATE KEY"
)


def looks_secret(text: str) -> bool:
    """Tell whether a text looks like a token or key, which must not be in a file or a URL."""
    return _SECRET.search(text) is not None
