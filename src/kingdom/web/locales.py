"""The languages of pages, and which of them a browser asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOCALES: Final = ("en", "ko")
LOCALE_COOKIE: Final = "kingdom_locale"


def preferred_locale(cookies: Mapping[str, str], languages: str, default: str) -> str:
    """Return the language: from the cookie, else the best match of ``Accept-Language``, else the default."""
    chosen = cookies.get(LOCALE_COOKIE)
    if chosen in LOCALES:
        return chosen
    return _accepted_locale(languages) or (default if default in LOCALES else LOCALES[0])


def _accepted_locale(languages: str) -> str | None:
    """Return the supported language with the highest weight in ``Accept-Language``."""
    wanted: list[tuple[float, str]] = []
    for part in languages.split(","):
        name, _, weight = part.strip().partition(";q=")
        try:
            wanted.append((float(weight or 1), name.split("-")[0].lower()))
        except ValueError:
            continue
    known = [(weight, name) for weight, name in wanted if name in LOCALES and weight > 0]
    return max(known, key=lambda one: one[0])[1] if known else None
