"""The index of texts: it finds every text with all words, and narrows a search to few documents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.court import text_index
from kingdom.court.text_index import TextIndex, search_words

LETTERS = "ab1-한é\u2028"
TEXTS = st.lists(st.text(alphabet=LETTERS + " \n\x1c", max_size=12), max_size=12)


def index_of(texts: list[str]) -> TextIndex:
    made = TextIndex()
    for number, text in enumerate(texts):
        made.add(f"d{number}", text)
    return made


@given(TEXTS, st.text(alphabet=LETTERS, min_size=1, max_size=3), st.sampled_from([0, 3, 100]))
def test_one_word_is_found_in_exactly_the_texts_that_contain_it(texts: list[str], word: str, recent: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_index, "_MAX_RECENT", recent)  # some tokens are in the large string, some are not yet
        index = index_of(texts)
        for one in search_words(word):
            expected = {f"d{number}" for number, text in enumerate(texts) if one in text}
            assert index.candidates([one]) == index.candidates([one]) == expected


@given(TEXTS, st.lists(st.text(alphabet=LETTERS, min_size=1, max_size=2), max_size=4))
def test_no_text_with_all_words_is_missed(texts: list[str], words: list[str]) -> None:
    found = index_of(texts).candidates(searched := search_words(" ".join(words)))
    expected = {f"d{number}" for number, text in enumerate(texts) if all(one in text for one in searched)}
    assert found is None if not searched else found is not None and expected <= found


def test_a_word_in_very_many_tokens_narrows_nothing_and_another_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_index, "_MAX_TOKENS", 5)
    monkeypatch.setattr(text_index, "_MAX_RECENT", 8)
    for texts in (9, 7):  # in the large string, and not yet
        index = index_of([f"task-{number} change" for number in range(texts)])
        assert index.candidates(["task"]) is None
        assert index.candidates(["task", "k-6"]) == {"d6"}
        assert index.candidates(["change"]) == {f"d{number}" for number in range(texts)}


def test_further_words_are_looked_for_until_few_documents_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_index, "_FEW", 2)
    index = index_of(["red one", "red two", "red two", "blue two"])
    assert index.candidates(["red", "two"]) == {"d1", "d2"}
    assert index.candidates(["blue", "one"]) == {"d3"}, "few enough to be checked"


def test_a_text_that_was_added_again_is_found_by_its_old_and_new_words() -> None:
    index = TextIndex()
    for text in ("status pending", "status done", "status done"):
        index.add("d", text)
    assert index.texts == 3
    assert index.candidates(["pending"]) == index.candidates(["done"]) == {"d"}


def test_rare_words_are_looked_for_first() -> None:
    assert search_words("a Change of 1234  change") == ["1234", "change", "of", "a"]
    assert search_words("  ") == []
