"""Pages that are followed to the letter: files written, commands given to a shell, real courts started and stopped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, Block, blocks, name_of, same

FOLLOWED = [page for page in PAGES if any(block.mark == "follow" for block in blocks(page))]
DAY = "20260207"  # the day on which it is in the pages
PATIENCE = 30.0  # seconds until what a page says must be so
_EVERY = 0.2
# These only look, and what they see may take a moment to come true.
LOOKING = ("kingdom status", "kingdom task ls", "kingdom task show", "kingdom trace", "kingdom logs", "cat ", "ls ")


class Shell:
    """The shell of somebody who follows a page."""

    def __init__(self, folder: Path) -> None:
        self._start = self._folder = folder
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
        self._environment = {**kept, "PATH": programs, "NO_COLOR": "1", "TZ": "UTC", "KINGDOM_WEB": "off"}

    def write(self, name: str, text: str) -> None:
        path = self._start / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def follow(self, block: Block) -> None:
        for command, output in block.commands:
            self._give(block, command, "\n".join(output))

    def _give(self, block: Block, command: str, expected: str) -> None:
        words = command.split()
        if words[0] == "cd":
            self._folder /= words[1]
            return
        end = time.monotonic() + (PATIENCE if command.startswith(LOOKING) else 0.0)
        while True:
            day = self._day()
            code, printed = self.run(command.replace(DAY, day))
            right = code == (1 if expected.startswith("error:") else 0)
            right = right and (not expected.strip() or same(expected.replace(DAY, day), printed))
            if right or time.monotonic() >= end:
                break
            time.sleep(_EVERY)
        assert right, f"{block.place}: {command} ended with {code} and printed\n{printed}"

    def run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout

    def _day(self) -> str:
        """The day that the ids of tasks bear: that of the last one, or today."""
        sequence = self._folder / "state" / "king" / "task-seq"
        return sequence.read_text()[:8] if sequence.exists() else datetime.now(UTC).strftime("%Y%m%d")


@pytest.mark.timeout(300)  # a page has dozens of commands, one after the other
@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_a_page_can_be_followed_from_its_beginning_to_its_end(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for block in blocks(page):
            if block.mark == "follow":
                shell.follow(block)
            elif block.mark.startswith("file:"):
                shell.write(block.mark.partition(":")[2].strip(), block.text)
    finally:
        homes = [path.parent.parent for path in tmp_path.glob("**/config/system.yaml")]
        for home in homes:
            shell.run(f"kingdom down --soldiers --home {home}")
    for home in homes:
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
