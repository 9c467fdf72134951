"""Files that people read with cat look like JSON that people write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kingdom.base.files import encode_json
from kingdom.base.jsontext import pretty
from kingdom.bus.transports.files.document import encode_form


def test_nested_values_are_indented_and_empty_ones_stay_short() -> None:
    document = {"id": "evt-1", "payload": {"labels": ["a", "b"], "user": {"login": "ann"}}, "event": {}, "links": []}
    text = """\
{
  "id": "evt-1",
  "payload": {
    "labels": ["a", "b"],
    "user": {
      "login": "ann"
    }
  },
  "event": {},
  "links": []
}
"""
    assert encode_json(document).decode() == text
    assert encode_form(document).decode() == text


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"a": None, "b": True, "c": 1.5, "d": 'é\n"x"'},
        {"many": [{"number": number, "text": "x" * 30} for number in range(50)]},
        {"long": ["x" * 40] * 9},
        {"surrogate": "\ud800"},
        {"huge": {"text": "x" * 100_000, "list": list(range(6)), **{str(n): n for n in range(9)}}},
    ],
)
def test_what_is_written_is_read_back(document: dict[str, Any]) -> None:
    assert json.loads(encode_json(document)) == document
    assert json.loads(encode_form(document)) == document


def test_a_value_that_is_very_deep_stays_on_one_line() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    assert json.loads(pretty({"deep": deep})) == {"deep": deep}
