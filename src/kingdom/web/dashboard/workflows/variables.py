"""The variables that the queries of a plan use, and that whoever makes a workflow has to give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_USED: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_OURS: Final = frozenset({"workflow", "work", "task", "reports", "answers"})
ISSUE_KEY: Final = "issue.key"
"""Has a field of its own."""


def variables_of(queries: Iterable[str]) -> list[str]:
    """The names in ``{{ name.part }}``, in their order, but those that are given by the workflow itself."""
    found = {name: None for query in queries for name in _USED.findall(query)}
    return [name for name in found if name.split(".")[0] not in _OURS]


def nested(values: Mapping[str, str]) -> dict[str, Any]:
    """``{"issue.title": "…"}`` as ``{"issue": {"title": "…"}}``; empty values are left out."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        if not value.strip():
            continue
        *path, last = name.split(".")
        place = made
        for part in path:
            deeper = place.setdefault(part, {})
            if not isinstance(deeper, dict):  # {{ a }} and {{ a.b }} in one plan: the longer one is meant
                deeper = place[part] = {}
            place = deeper
        place.setdefault(last, value)
    return made
