"""What sources write, and what is made of it: times, ids, rich text, types of events."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kingdom.base.yamlfile import load_yaml
from kingdom.court.init_home import SHIPPED_GENERALS_DIR
from kingdom.court.models import Event, subject_of
from kingdom.court.packages.manifest import Manifest
from kingdom.court.patterns import type_matches
from kingdom.court.request_threads import REQUEST_EVENTS
from kingdom.court.sentinel.events import SOURCE_EVENT_TYPES, clean_text, default_priority, make_event_id, parse_epoch
from kingdom.court.sentinel.github_events import GitHubAccount
from kingdom.court.sentinel.jira_events import adf_mentions, adf_text


@pytest.mark.parametrize(
    "written",
    [
        "2026-02-07T10:00:00Z",
        "2026-02-07T10:00:00.000Z",
        "2026-02-07T19:00:00.000+0900",
        "2026-02-07T06:00:00-04:00",
        "2026-02-07T10:00:00",
    ],
)
def test_times_are_read_with_their_offset(written: str) -> None:
    assert parse_epoch(written) == datetime(2026, 2, 7, 10, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("written", [None, 5, "", "yesterday", "2026-13-01T00:00:00Z", {}])
def test_what_is_no_time_is_zero(written: object) -> None:
    assert parse_epoch(written) == 0


def test_ids_are_file_names_whatever_they_are_made_of() -> None:
    assert make_event_id("github", "acme.shop", 12, "comment-5") == "evt-github-acme.shop-12-comment-5"
    assert make_event_id("github", "../../etc/passwd") == "evt-github-.._.._etc_passwd"
    long = make_event_id("github", "x" * 500)
    assert len(long) <= 200
    assert long != make_event_id("github", "x" * 499)
    for name in (long, make_event_id("jira", "한글", "\n")):
        Event(id=name, type="a.b", source="x", created_at=datetime.now(UTC))


def test_half_characters_and_nul_do_not_get_into_a_document() -> None:
    assert clean_text("a\ud83d\0b") == "a?b"
    assert clean_text(None) == clean_text(5) == ""
    assert clean_text("x" * 20, 10).startswith("x" * 10 + "\n[… 10 characters")


def test_rich_text_of_jira_becomes_plain_text() -> None:
    def text(words: str, **more: object) -> dict[str, object]:
        return {"type": "text", "text": words, **more}

    def paragraph(*nodes: object) -> dict[str, object]:
        return {"type": "paragraph", "content": list(nodes)}

    def item(*nodes: object) -> dict[str, object]:
        return {"type": "listItem", "content": list(nodes)}

    nested = {"type": "orderedList", "content": [item(paragraph(text("deep")))]}
    link = {"type": "link", "attrs": {"href": "https://x.example"}}
    document = {
        "type": "doc",
        "content": [
            {"type": "heading", "attrs": {"level": 1}, "content": [text("Title")]},
            paragraph(text("See "), text("here", marks=[link]), {"type": "hardBreak"}, text("and there")),
            {"type": "bulletList", "content": [item(paragraph(text("one"))), item(paragraph(text("two")), nested)]},
            {"type": "codeBlock", "content": [text("x = 1\ny = 2")]},
            paragraph(
                {"type": "mention", "attrs": {"id": "acc-1", "text": "@ann"}},
                {"type": "emoji", "attrs": {"shortName": ":+1:"}},
            ),
            {"type": "mediaSingle", "content": [{"type": "media", "attrs": {"id": "f"}}]},
            {"type": "newThing", "content": [paragraph(text("kept"))]},
        ],
    }
    assert adf_text(document) == (
        "Title\nSee here (https://x.example)\nand there\n- one\n- two\n  1. deep\nx = 1\ny = 2\n@ann:+1:\nkept"
    )
    assert list(adf_mentions(document)) == ["acc-1"]
    assert adf_text("wiki text") == "wiki text"
    assert adf_text(None) == adf_text([]) == adf_text({"content": "x"}) == ""


def test_rich_text_without_a_bottom_ends() -> None:
    document: dict[str, object] = {"type": "text", "text": "bottom"}
    for _ in range(500):
        document = {"type": "panel", "content": [document]}
    assert "bottom" not in adf_text(document)
    assert list(adf_mentions(document)) == []


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("@kingdom-bot please", True),
        ("(cc @Kingdom-Bot)", True),
        ("thanks @kingdom-bot.", True),
        ("@kingdom-botany", False),
        ("@kingdom-bot/team", False),
        ("mail@kingdom-bot", False),
        ("`@kingdom-bot`", False),
        ("@acme/backend, look", True),
        ("@acme/backend-2, look", False),
        ("", False),
    ],
)
def test_who_is_mentioned(text: str, called: bool) -> None:
    assert GitHubAccount.of("kingdom-bot", teams=["acme/backend"]).mentioned_in(text) is called


def test_the_shipped_generals_subscribe_to_types_that_exist() -> None:
    types = [*(kind.type for kind in SOURCE_EVENT_TYPES), *REQUEST_EVENTS]
    for folder in SHIPPED_GENERALS_DIR.iterdir():
        manifest = load_yaml(folder / "manifest.yaml", Manifest)
        for subscription in manifest.subscribes:
            assert any(type_matches(subscription.type, one) for one in types), subscription.type


def test_types_are_valid_and_listed_once() -> None:
    assert len({kind.type for kind in SOURCE_EVENT_TYPES}) == len(SOURCE_EVENT_TYPES)
    assert default_priority("github.pr.review_requested") == "high"
    assert default_priority("github.notification.release") == "low"
    assert default_priority("anything.else") == "normal"


def test_the_court_knows_what_the_events_are_about() -> None:
    assert subject_of({"repo": "acme/shop", "payload": {"number": 12}}) == "acme/shop#12"
    assert subject_of({"repo": None, "payload": {"key": "SHOP-7"}}) == "SHOP-7"
