"""The texts of the dashboard in each language."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from kingdom.web.dashboard.words import (
    en,
    en_court,
    en_inbox,
    en_over_time,
    en_people,
    en_workflows,
    ko,
    ko_court,
    ko_inbox,
    ko_over_time,
    ko_people,
    ko_reasons,
    ko_workflows,
)
from kingdom.web.locales import LOCALES

__all__ = ["LOCALES", "LOCALE_NAMES", "TEXTS", "Translations", "translations"]

LOCALE_NAMES: Final = {"en": "English", "ko": "한국어"}
TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        **en.WORDS,
        **en_court.COURT_WORDS,
        **en_inbox.INBOX_WORDS,
        **en_people.PEOPLE_WORDS,
        **en_over_time.OVER_TIME_WORDS,
        **en_workflows.WORKFLOW_WORDS,
    },
    "ko": {
        **ko.WORDS,
        **ko_court.COURT_WORDS,
        **ko_inbox.INBOX_WORDS,
        **ko_people.PEOPLE_WORDS,
        **ko_over_time.OVER_TIME_WORDS,
        **ko_workflows.WORKFLOW_WORDS,
    },
}
_REASONS: Final = {"ko": ko_reasons.REASONS}
_REASON_WORDS: Final = {"level": "load", "state": "role"}


class Translations:
    """The texts of one language: ``words("task.id")``."""

    def __init__(self, locale: str) -> None:
        self.locale = locale
        self._texts = TEXTS[locale]
        self._reasons = [(re.compile(pattern, re.DOTALL), words) for pattern, words in _REASONS.get(locale, ())]

    def __call__(self, key: str, **fields: object) -> str:
        """Return the text of a key; ``{name}`` is replaced by the field of that name."""
        text = self._texts[key]
        return text.format(**fields) if fields else text

    def of(self, prefix: str, word: str) -> str:
        """Return the text of ``prefix.word``, for example of a status; the word itself if there is none."""
        return self._texts.get(f"{prefix}.{word}", word)

    def reason(self, text: str) -> str:
        """Return a reason of the court or of a workflow in this language; as it is if there are no words for it.

        Reasons are stored in English, for logs and programs too. Several are separated by semicolons.
        """
        if not self._reasons:
            return text
        for pattern, words in self._reasons:
            if (found := pattern.fullmatch(text)) is not None:
                return words.format(
                    **{name: self._part(name, value or "") for name, value in found.groupdict().items()}
                )
        parts = text.split("; ")
        return "; ".join(map(self.reason, parts)) if len(parts) > 1 else text

    def _part(self, name: str, value: str) -> str:
        if name.startswith("reason"):
            return self.reason(value)
        return self.of(_REASON_WORDS[name], value) if name in _REASON_WORDS else value


@cache
def translations(locale: str) -> Translations:
    return Translations(locale)
