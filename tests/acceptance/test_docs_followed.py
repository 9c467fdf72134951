"""Pages that are followed to the letter: files written, commands given to a shell, real courts started and stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.followed import Shell
from tests.support.pages import PAGES, ROOT, blocks, name_of

FOLLOWED = [
    page
    for page in PAGES
    if any(block.mark == "follow" for block in blocks(page))
    and not page.name.startswith("quick-start")  # followed with an installed package, by test_quick_starts.py
]


@pytest.mark.walk
@pytest.mark.timeout(300)  # a page has dozens of commands, one after the other
@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_a_page_can_be_followed_from_its_beginning_to_its_end(page: Path, tmp_path: Path) -> None:
    for home in Shell(tmp_path).follow_page(page):
        assert unknown_files(home) == [], "docs/reference/home.md does not say whose these are"


def unknown_files(home: Path) -> list[str]:
    """The files of a home that its page does not have."""
    page = (ROOT / "docs" / "reference" / "home.md").read_text("utf-8")
    known = [_form(path) for path in _paths(page)]
    found = (path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    return sorted(name for name in found if not any(re.fullmatch(form, name) for form in known))


def _paths(page: str) -> Iterator[str]:
    """The paths in the first cells of the page's tables, each below the folder that is the heading."""
    yield from (".gitignore", "gen-hello/*", "state/<role>/heartbeat", "state/<role>/.lock")
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        folder = section.split("\n", 1)[0].strip()
        for row in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE):
            yield from (f"{folder}/{path}" for path in re.findall(r"`([^`]+)`", row))
            if row.startswith("`results/<task>-"):
                yield "state/results/<task>-session-id"
            if ".kingdom-bus.json" in row:
                yield from (f"queue/<queue>/{name}" for name in (".stream.json", ".ledger", ".lock"))
            if row.startswith("`king/task-seq`"):
                yield "state/king/.*-seq.lock"


def _form(path: str) -> str:
    """A path of the page as a pattern: names in angle brackets and * stand for one part, a folder for what is in it."""
    form = re.sub(r"<[a-z]+>|YYYY(-?MM)?(DD)?|DATE|\*", "\0", path)
    return re.escape(form).replace("\0", "[^/]+") + (".+" if form.endswith("/") else "")


def test_there_are_pages_to_follow() -> None:
    assert "docs/tutorial/first-court.md" in map(name_of, FOLLOWED)
