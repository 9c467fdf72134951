"""Markdown in Slack: formatted as it was meant, shown as it is, and within Slack's limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.court.envoy.slack.posts import closed_question, join_updates, post_parts, post_text, text_blocks
from kingdom.court.envoy.slack.rich_text import markdown_units, plain_text, rich_blocks
from kingdom.court.models import Message
from tests.support.slack_blocks import block_error

MARKDOWN = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(["**", "*", "`", "```\n", "\n", "\n\n", "- ", "1. ", "> ", "| a | b |\n|---|---|\n", "---\n"]),
        st.sampled_from(
            ["[x](https://a.example)", "<https://b.example>", "# ", "~~", "\\", "    ", "한글", "👩‍👩‍👧", "![i](u)"]
        ),
    ),
    max_size=40,
).map("".join)


def blocks(text: str) -> list[dict[str, Any]]:
    return rich_blocks(markdown_units(text))


def elements(text: str) -> list[dict[str, Any]]:
    (block,) = blocks(text)
    found: list[dict[str, Any]] = block["elements"]
    return found


def inline(text: str) -> list[dict[str, Any]]:
    (section,) = elements(text)
    *found, end = section["elements"]
    assert end == {"type": "text", "text": "\n"}
    return list(found)


def message(content: str, **more: Any) -> Message:
    document = {"id": "msg-20260207-001", "type": "notification", "created_at": "2026-02-07T12:00:00Z", **more}
    return Message(**document, content=content)


@pytest.mark.parametrize(
    ("text", "style"),
    [("**x**", "bold"), ("*x*", "italic"), ("_x_", "italic"), ("~~x~~", "strike"), ("`x`", "code"), ("# x", "bold")],
)
def test_styles(text: str, style: str) -> None:
    assert inline(text) == [{"type": "text", "text": "x", "style": {style: True}}]


def test_korean_and_emoji_stay_as_they_are_also_beside_marks() -> None:
    assert inline('**"인용"**은 *강조*한 🎉👩‍👩‍👧 `코드`') == [
        {"type": "text", "text": '"인용"', "style": {"bold": True}},
        {"type": "text", "text": "은 "},
        {"type": "text", "text": "강조", "style": {"italic": True}},
        {"type": "text", "text": "한 🎉👩‍👩‍👧 "},
        {"type": "text", "text": "코드", "style": {"code": True}},
    ]


def test_links_lead_where_they_say() -> None:
    assert inline("[site](https://a.example/x) and https://b.example/y?z=1.") == [
        {"type": "link", "url": "https://a.example/x", "text": "site"},
        {"type": "text", "text": " and "},
        {"type": "link", "url": "https://b.example/y?z=1"},
        {"type": "text", "text": "."},
    ]
    assert inline("[https://bank.example](https://evil.example)") == [
        {"type": "text", "text": "https://bank.example "},
        {"type": "link", "url": "https://evil.example"},
    ], "a label that looks like another address does not hide the real one"
    assert inline("[run](file:///etc/passwd) ![a picture](https://a.example/p.png)") == [
        {"type": "text", "text": "[run](file:///etc/passwd) "},
        {"type": "link", "url": "https://a.example/p.png", "text": "a picture"},
    ]


def test_lists_are_lists_with_their_depth_and_numbers() -> None:
    found = elements("- one\n- two\n  1. three\n  2. four\n\n     more\n- five\n\n7. seven\n8. eight")
    assert [(item["style"], item["indent"], item.get("offset"), len(item["elements"])) for item in found] == [
        ("bullet", 0, None, 2),
        ("ordered", 1, None, 2),
        ("bullet", 0, None, 1),
        ("ordered", 0, 6, 2),
    ]
    assert [item["text"] for item in found[1]["elements"][1]["elements"]] == ["four", "\n", "more"]


def test_code_quotes_and_lines_between() -> None:
    found = blocks("> said\n> twice\n\n```python\nif a < b:\n    pass\n```\n\n---\n\nend")
    assert [block["type"] for block in found] == ["rich_text", "divider", "rich_text"]
    quote, code = found[0]["elements"]
    assert (quote["type"], code["type"]) == ("rich_text_quote", "rich_text_preformatted")
    assert code["elements"] == [{"type": "text", "text": "if a < b:\n    pass"}]


def test_a_table_is_aligned_also_in_korean() -> None:
    (table,) = elements("| 장군 | Done |\n|---|---|\n| gen-pr | 3 |\n| 한글이름 | 12 |")
    assert table["type"] == "rich_text_preformatted"
    assert table["elements"][0]["text"].split("\n") == [
        "장군     │ Done",
        "─────────┼─────",
        "gen-pr   │ 3",
        "한글이름 │ 12",
    ]


def test_a_table_that_is_too_wide_becomes_a_list_of_records() -> None:
    (table,) = elements(f"| name | what |\n|---|---|\n| a | {'word ' * 40} |\n| b | short |")
    assert table["type"] == "rich_text_list"
    first, second = ["".join(item["text"] for item in row["elements"]) for row in table["elements"]]
    assert first.startswith("name: a\nwhat: word word")
    assert second == "name: b\nwhat: short"


def test_nothing_in_a_text_is_obeyed() -> None:
    hostile = "<!channel> <@U0ANN> <https://evil.example|click> :tada: &lt; **<!here>** \x1b[2J"
    shown = "".join(item.get("text") or item.get("url") or "" for item in inline(hostile))
    assert "<!channel> <@U0ANN>" in shown
    assert "\x1b" not in shown
    assert {item["type"] for item in inline(hostile)} <= {"text", "link"}


@given(MARKDOWN)
def test_whatever_is_written_slack_takes_it(text: str) -> None:
    for part in post_parts(message(text), "en"):
        assert part.blocks is None or block_error(part.blocks) is None
    assert block_error(text_blocks(post_text(message(text, urgency="high"), "en"))) is None


@given(st.text(alphabet="abc 한글🎉\n"), st.integers(1, 400))
def test_a_long_text_is_divided_and_nothing_is_left_out(line: str, times: int) -> None:
    parts = post_parts(message(f"{line}\n\n" * times), "en")
    assert all(part.blocks is None or block_error(part.blocks) is None for part in parts)
    if len(parts) < 10:
        wanted = f"{line}\n\n" * times
        shown = "".join(plain_text(markdown_units(part.text)) for part in parts)
        assert "".join(shown.split()) == "".join(wanted.split())


def test_more_than_ten_posts_are_cut_and_say_so() -> None:
    parts = post_parts(message("word " * 40_000, context={"task_id": "task-20260207-001"}), "en")
    assert len(parts) == 10
    assert "kingdom trace task-20260207-001" in str((parts[-1].blocks or [])[-1])
    assert "Continued below" in str(parts[0].blocks)


def test_plain_text_needs_no_blocks() -> None:
    assert post_parts(message("Two lines,\nand https://a.example/x"), "en") == [
        ("Two lines,\nand https://a.example/x", None)
    ]


def test_urgency_is_an_emoji_before_the_text() -> None:
    for content, first in (("**now**", "rich_text_section"), ("```\ncode\n```", "rich_text_section")):
        (part,) = post_parts(message(content, urgency="urgent"), "en")
        section = (part.blocks or [])[0]["elements"][0]
        assert section["type"] == first
        assert section["elements"][0] == {"type": "emoji", "name": "rotating_light"}
        assert part.text.startswith(":rotating_light: ")
        assert text_blocks(part.text) == part.blocks


def test_a_closed_question_keeps_its_form() -> None:
    _, shown = closed_question("**Which** &lt;one&gt;?", "Answered")
    assert shown[0]["elements"][0]["elements"][:2] == [
        {"type": "text", "text": "Which", "style": {"bold": True}},
        {"type": "text", "text": " <one>?"},
    ]
    assert shown[1]["type"] == "context"


def test_updates_are_added_as_lines_and_formatted_ones_as_paragraphs() -> None:
    assert join_updates("one", "two") == "one\ntwo"
    assert join_updates("- one", "two") == "- one\n\ntwo"
    assert join_updates("one", "```\ntwo\n```") == "one\n\n```\ntwo\n```"
