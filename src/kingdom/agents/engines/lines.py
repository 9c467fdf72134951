"""Reading lines that a program printed: anything may stand there, so nothing here raises for it."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line; None for everything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def as_json(value: Any) -> str:
    """The JSON text of something that came out of one; empty when it is nested too deep to be written."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def is_torn(line: bytes) -> bool:
    """Whether a line that is no JSON object looks like a part of one: its rest went with the process."""
    return line.lstrip().startswith(b"{")


def mapping(value: Any) -> dict[str, Any]:
    """The object it should be, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The list it should be, or an empty one."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str | None:
    """The text it should be, fit to be written anywhere (half a surrogate pair is replaced); None for no text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def count(value: Any) -> int:
    """A number of things: 0 for anything that is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def amount(value: Any) -> float | None:
    """A finite number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def epoch(value: Any) -> float | None:
    """A time in seconds since the epoch; one in milliseconds is seen as such."""
    number = amount(value)
    if not number:
        return None
    return number / 1000 if number > 1e11 else number


def one_line(value: str, limit: int = 200) -> str:
    """Text as one line for people, cut with an ellipsis."""
    line = " ".join(value[: limit * 8].split())
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
