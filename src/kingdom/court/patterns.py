"""Match event types and names against the patterns of manifests and of ``config/trust.yaml``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


NOBODY_SUBSCRIBES: Final = "no general subscribes to it"
"""Why the king discards an event whose type, repository or author no subscription matches."""


def type_matches(pattern: str, event_type: str) -> bool:
    """Whether an event type matches a pattern. ``*`` stands for one word, at the end for one or more."""
    if "*" not in pattern:
        return pattern == event_type
    wanted, words = pattern.split("."), event_type.split(".")
    if wanted[-1] == "*" and len(words) > len(wanted):
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(one in ("*", word) for one, word in zip(wanted, words, strict=True))


def matches_any(name: str | None, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns, ignoring case.

    Only ``*`` and ``?`` are special. Brackets are part of names, as in ``dependabot[bot]``.
    """
    if name is None:
        return False
    lowered = name.lower()
    return any(fnmatchcase(lowered, pattern.lower().replace("[", "[[]")) for pattern in patterns)
