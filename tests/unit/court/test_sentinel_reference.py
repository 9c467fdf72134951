"""The page on connecting sources has every type of event there is."""

from __future__ import annotations

import re

from kingdom.court.sentinel.events import SOURCE_EVENT_TYPES
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "how-to" / "connect-github-jira-slack.md"


def test_the_page_has_every_type_with_its_meaning() -> None:
    text = PAGE.read_text("utf-8")
    assert [kind.type for kind in SOURCE_EVENT_TYPES if f"| `{kind.type}` | {kind.meaning}" not in text] == []
    told = re.findall(r"^\| `((?:github|jira)\.[\w.*]+)` \|", text, re.MULTILINE)
    assert told == [kind.type for kind in SOURCE_EVENT_TYPES]
