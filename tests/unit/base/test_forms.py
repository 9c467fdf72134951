"""A person who wrote a wrong text is told the form in words."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, StringConstraints, ValidationError

from kingdom.base.forms import form, problem_text
from kingdom.court.errors import InvalidDocument
from kingdom.court.models import Event
from kingdom.court.queues import parse_document


def test_an_invalid_event_is_explained_with_examples_and_without_a_regular_expression() -> None:
    document = {"id": "Evt 1", "type": "Nope", "source": "ci", "created_at": "2026-02-07T10:00:00Z"}
    with pytest.raises(InvalidDocument) as caught:
        parse_document(Event, document, "the event")
    said = str(caught.value)
    assert "id: must be evt-, a source and a name, such as evt-github-12345" in said
    assert "type: must be two or more words" in said
    assert "github.pr.opened" in said
    assert "^" not in said
    assert "[a-z" not in said


def test_a_form_without_words_is_not_shown_as_a_regular_expression_either() -> None:
    class Made(BaseModel):
        named: Annotated[str, StringConstraints(pattern=form(r"^\d+x$", "digits and an x, such as 7x"))]
        other: Annotated[str, StringConstraints(pattern=r"^\d+y$")]

    with pytest.raises(ValidationError) as caught:
        Made.model_validate({"named": "a", "other": "b"})
    assert [problem_text(error) for error in caught.value.errors()] == [
        "must be digits and an x, such as 7x",
        "has characters, or a form, that are not allowed here",
    ]
