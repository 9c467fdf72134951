"""Spans of time as people write them: ``30s``, ``15m``, ``2h``, ``7d``."""

from __future__ import annotations

import re
from typing import Final

import typer

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_FORM: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Return the seconds in ``text``, or refuse it as a usage error."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration: write 30s, 15m, 2h or 7d")
    return float(match.group(1)) * _UNITS[match.group(2)]


def format_duration(seconds: float) -> str:
    """Write a span with its two largest units: ``1d 4h``, ``3m 12s``, ``0.4s``."""
    if seconds < 60:
        tenths = int(seconds * 10)  # cut, not rounded: 59.97 is not 60
        return f"{tenths / 10:g}s"
    rest = int(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))
