"""Names of people's things as parts of paths and branches."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_OTHER: Final = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST: Final = 40


def slug(text: str) -> str:
    """A text as a part of a path: letters, digits, ``_`` and ``-``; never empty."""
    return _OTHER.sub("-", text).strip("-")[:_LONGEST].strip("-") or "unnamed"


def tag(*ids: str) -> str:
    """Six digits that follow from ids: they keep apart what people gave the same name."""
    return hashlib.sha256("\0".join(ids).encode("utf-8", "replace")).hexdigest()[:6]
