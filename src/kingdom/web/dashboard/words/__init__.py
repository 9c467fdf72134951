"""The texts of the dashboard in each language."""

from __future__ import annotations

from functools import cache
from typing import Final

from kingdom.web.dashboard.words import en, en_court, en_inbox, en_workflows, ko, ko_court, ko_inbox, ko_workflows

LOCALES: Final = ("en", "ko")
LOCALE_NAMES: Final = {"en": "English", "ko": "한국어"}
TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {**en.WORDS, **en_court.COURT_WORDS, **en_inbox.INBOX_WORDS, **en_workflows.WORKFLOW_WORDS},
    "ko": {**ko.WORDS, **ko_court.COURT_WORDS, **ko_inbox.INBOX_WORDS, **ko_workflows.WORKFLOW_WORDS},
}


class Translations:
    """The texts of one language: ``words("task.id")``."""

    def __init__(self, locale: str) -> None:
        self.locale = locale
        self._texts = TEXTS[locale]

    def __call__(self, key: str, **fields: object) -> str:
        """Return the text of a key; ``{name}`` is replaced by the field of that name."""
        text = self._texts[key]
        return text.format(**fields) if fields else text

    def of(self, prefix: str, word: str) -> str:
        """Return the text of ``prefix.word``, for example of a status; the word itself if there is none."""
        return self._texts.get(f"{prefix}.{word}", word)


@cache
def translations(locale: str) -> Translations:
    return Translations(locale)
