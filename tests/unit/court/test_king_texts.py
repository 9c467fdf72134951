"""Text from outside in what the king writes, and what he says in each language."""

from __future__ import annotations

from typing import Any

import pytest

from kingdom.base.text import one_line, storable
from kingdom.court.config import SystemConfig
from kingdom.court.king.cases import Case, MessageComposer, title_of
from kingdom.court.models import Result
from tests.support.kings import NOON

CASE = Case("evt-x-1", "task-20260207-001", "gen-pr", "x.y", "normal", "PR 7 {0}", "task-20260207-001")


def result(**fields: Any) -> Result:
    document = {"task_id": CASE.task, "general": "gen-pr", "started_at": NOON, "ended_at": NOON, **fields}
    return Result.model_validate(document)


def test_what_queues_refuse_is_removed_at_any_depth() -> None:
    hostile = {"a\0": ["x\0y", {"k": "\ud800z"}, 1, None, True], "ok": "é\n‮"}
    assert storable(hostile) == {"a": ["xy", {"k": "z"}, 1, None, True], "ok": "é\n‮"}


def test_a_title_is_one_short_line_without_hidden_characters() -> None:
    assert one_line("a\r\n\tb\x1b[31m\u202ec\u200b d") == "a b [31m c d"
    assert one_line("x" * 1_000_000) == "x" * 119 + "…"
    assert title_of({"type": "x.y", "payload": {"title": "fix\nit"}}, "acme/web#7") == "acme/web#7 fix it"
    assert title_of({"type": "x.y", "payload": {"title": " \u200b"}}, None) == "x.y"
    assert title_of({"type": "x.y", "payload": []}, None) == "x.y"


@pytest.mark.parametrize(
    ("notify", "scheduled", "status", "kind", "urgency"),
    [
        ("all", False, "success", "thread_update", "normal"),
        ("all", False, "skipped", "thread_update", "normal"),
        ("all", False, "failed", "thread_update", "high"),
        ("all", False, "timeout", "thread_update", "high"),
        ("result", False, "success", "notification", "normal"),
        ("result", True, "success", "report", "normal"),
        ("all", True, "success", "report", "normal"),
        ("all", True, "failed", "notification", "high"),
    ],
)
def test_what_is_said_at_the_end(notify: str, scheduled: bool, status: str, kind: str, urgency: str) -> None:
    speaker = MessageComposer(SystemConfig())
    case = Case.from_dict({**CASE.to_dict(), "scheduled": scheduled})
    (draft,) = speaker.ended(
        case, notify, result(status=status, summary="sum", error="err", links=["https://x.test/1"])
    )
    assert (draft.type, draft.urgency) == (kind, urgency)
    assert ("sum" in draft.content) is (urgency == "normal")
    assert ("err" in draft.content) is (urgency == "high")
    assert draft.content.endswith("https://x.test/1")
    assert draft.context["task_id"] == CASE.task
    assert bool(speaker.started(case, notify)) is (notify == "all" and not scheduled)


def test_a_silent_general_says_nothing_but_its_questions() -> None:
    speaker = MessageComposer(SystemConfig())
    assert speaker.started(CASE, "silent") == []
    assert speaker.ended(CASE, "silent", result(status="failed", error="no")) == []


def test_both_languages_say_everything() -> None:
    from kingdom.court.king.cases import _TEXTS, render_text

    assert _TEXTS["en"].keys() == _TEXTS["ko"].keys()
    values = {"general": "{title}", "title": "{0} {", "deadline": "d", "default": "f", "user": "u"}
    values |= {"subject": "s", "type": "t"}
    for locale in _TEXTS:
        for name in _TEXTS[locale]:
            assert render_text(locale, name, **values)
    assert render_text("ko", "started", general="gen-pr", title="제목") == "gen-pr: 제목 작업을 시작했습니다"
