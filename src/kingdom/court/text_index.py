"""An index of the words in many texts, which finds the few documents in which a word may occur."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

# Few enough that checking the text of each is faster than looking for one more word.
_FEW: Final = 1_000
# Words that occur in more tokens, such as "task" in a hundred thousand ids, do not narrow a search.
_MAX_TOKENS: Final = 10_000
_MAX_RECENT: Final = 20_000


class TextIndex:
    """Finds which documents may contain a word, without reading their texts. May be used from several threads.

    A word has no spaces, so it lies within one token: a part of a text between spaces. A hundred thousand texts have
    far fewer different tokens than words, and these stand in one string, which is searched within milliseconds.
    Documents that were removed or changed are not taken out: the texts of those found have to be checked.
    """

    def __init__(self) -> None:
        self._ids: dict[str, str | list[str]] = {}  # the documents of a token; most tokens are in one
        self._tokens = "\n"  # each between two line ends
        self._recent: list[str] = []  # not yet in that string
        self._lock = Lock()
        self.texts = 0
        """The number of texts that were added."""

    def add(self, document_id: str, text: str) -> None:
        """Add the text of a document."""
        with self._lock:
            self.texts += 1
            for token in set(text.split()):
                known = self._ids.get(token)
                if known is None:
                    self._ids[token] = document_id
                    self._recent.append(token)
                elif isinstance(known, list):
                    known.append(document_id)
                elif known != document_id:
                    self._ids[token] = [known, document_id]

    def candidates(self, words: Iterable[str]) -> set[str] | None:
        """Return the ids of the documents that may contain all words; None when these may be most documents."""
        found: set[str] | None = None
        for word in words:
            with self._lock:
                ids = self._documents_with(word)
            if ids is not None:
                found = ids if found is None else found & ids
            if found is not None and len(found) <= _FEW:
                break
        return found

    def _documents_with(self, word: str) -> set[str] | None:
        if len(self._recent) > _MAX_RECENT:
            self._tokens += "\n".join((*self._recent, ""))
            self._recent = []
        tokens = _tokens_with(word, self._tokens)
        if tokens is not None:
            tokens += [token for token in self._recent if word in token]
        if tokens is None or len(tokens) > _MAX_TOKENS:
            return None
        found: set[str] = set()
        for token in tokens:
            ids = self._ids[token]
            if isinstance(ids, str):
                found.add(ids)
            else:
                found.update(ids)
        return found


def search_words(text: str) -> Sequence[str]:
    """Return the words of a search, those first that are likely to be rare: with digits, and long ones."""
    words = dict.fromkeys(text.casefold().split())
    return sorted(words, key=lambda word: (not any(map(str.isdigit, word)), -len(word)))


def _tokens_with(word: str, tokens: str) -> list[str] | None:
    """Return the tokens that contain a word; None when there are too many."""
    found = []
    at = tokens.find(word)
    while at != -1:
        begin, end = tokens.rfind("\n", 0, at) + 1, tokens.find("\n", at)
        found.append(tokens[begin:end])
        if len(found) > _MAX_TOKENS:
            return None
        at = tokens.find(word, end)
    return found
