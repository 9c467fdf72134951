"""Values as TOML, on one line: what ``codex -c key=value`` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(value: Any) -> str:
    """A text, number, truth value, list or table as an inline TOML value."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            # The escapes of JSON are TOML's too; only DEL is forbidden here and plain there.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            return "{" + ",".join(f"{to_toml(str(key))}={to_toml(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(to_toml, value)) + "]"
    raise TypeError(f"{value!r:.80} has no form in TOML here")
