"""Names of people and repositories are found as words, in texts and in the text of JSON documents."""

from __future__ import annotations

import json

import pytest

from kingdom.court.erasure.names import InvalidSubject, SubjectNames
from kingdom.court.erasure.removal import redacted_line

ANN = SubjectNames("person", ("ann-lee", "U012AB", "앤 리"))
SHOP = SubjectNames("repository", ("acme/shop",))


@pytest.mark.parametrize(
    "text",
    [
        "ann-lee",
        "@Ann-Lee: hi",
        "(ann-lee)",
        "ann-lee's",
        "<@U012AB>",
        "앤 리가 말했다",
        json.dumps("앤 리"),
        '"a\\nann-lee"',
    ],
)
def test_a_person_is_found(text: str) -> None:
    assert ANN.are_in(text)
    hidden = ANN.hide(text)
    assert not ANN.are_in(hidden)
    assert len(hidden.encode()) == len(text.encode())


@pytest.mark.parametrize("text", ["ann-leeward", "joann-lee", "ann-lee2", "ann_lee", "U012ABC", ""])
def test_another_word_is_not_taken_for_a_person(text: str) -> None:
    assert not ANN.are_in(text)
    assert ANN.hide(text) == text


@pytest.mark.parametrize(
    "text", ["acme/shop", "acme/shop#12", "https://github.com/Acme/Shop.git", "acme/shop/pull/7", "in acme/shop."]
)
def test_a_repository_is_found(text: str) -> None:
    assert SHOP.are_in(text)


@pytest.mark.parametrize("text", ["acme/shop-two", "acme/shop.js", "bigacme/shop", "acme/shopping"])
def test_another_repository_is_not_taken_for_it(text: str) -> None:
    assert not SHOP.are_in(text)


@pytest.mark.parametrize("name", ["", " ", "a", "task_id", "King", "a\nb", " ann"])
def test_a_name_that_cannot_be_searched_for_is_refused(name: str) -> None:
    with pytest.raises(InvalidSubject):
        SubjectNames("person", (name,))


def test_a_journal_line_keeps_its_ids_and_loses_its_texts() -> None:
    line = {"ts": "2026-02-07T10:00:00Z", "type": "task.failed", "actor": "gen-pr"}
    data = {"task_id": "task-20260207-001", "error": "she said no", "retry_count": 1}
    raw = json.dumps({**line, "data": data}, separators=(",", ":")).encode()
    made = redacted_line(raw, {"task-20260207-001"}, ANN)
    assert json.loads(made) == {**line, "data": {**data, "error": ""}}
    assert len(made) <= len(raw)
    assert redacted_line(raw, {"task-20260207-002"}, ANN) == raw
    named = json.dumps({**line, "data": {**data, "error": "앤 리"}}, ensure_ascii=False, separators=(",", ":")).encode()
    assert json.loads(redacted_line(named, set(), ANN))["data"]["error"] == "x" * 7
    assert redacted_line(b"{torn ann-lee", set(), ANN) == b"{torn xxxxxxx"
