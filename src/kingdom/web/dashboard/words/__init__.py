"""The texts of the dashboard, in each language: ``words("tasks.title")``."""

from __future__ import annotations

from functools import cache
from typing import Final

from kingdom.web.dashboard.words import en, ko
from kingdom.web.dashboard.words import en as _en
from kingdom.web.dashboard.words import ko as _ko

LOCALES: Final = ("en", "ko")
LOCALE_NAMES: Final = {"en": "English", "ko": "한국어"}
TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {**_en.WORDS, **en.WORKFLOW_WORDS},
    "ko": {**_ko.WORDS, **ko.WORKFLOW_WORDS},
}


class Translations:
    """The texts of one language."""

    def __init__(self, locale: str) -> None:
        self.locale = locale
        self._texts = TEXTS[locale]

    def __call__(self, key: str, **fields: object) -> str:
        """The text of a key, with ``{name}`` replaced by the field of that name."""
        text = self._texts[key]
        return text.format(**fields) if fields else text

    def of(self, prefix: str, word: str) -> str:
        """The text for a word of the court, as a status; the word itself where we have none for it."""
        return self._texts.get(f"{prefix}.{word}", word)


@cache
def translations(locale: str) -> Translations:
    """The words of a language."""
    return Translations(locale)
