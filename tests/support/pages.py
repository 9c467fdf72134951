"""Reading the documentation as a program would: its code blocks, headings and links.

A code block may carry a mark, an HTML comment on the line above its fence, which no reader sees:

* ``<!-- run -->`` above Python or console text: it is run. All marked blocks of a page share one directory and, for
  Python, one namespace, and run in the order they stand in. Python may use ``await`` outside functions.
* ``<!-- prints -->`` above text: exactly what the Python blocks before it printed. ``…`` stands for anything.
* ``<!-- follow -->`` above console text: its commands are given to a shell, as the reader would, with real processes.
* ``<!-- file: NAME -->``: it is a file that the page has its reader write. In a page with blocks to follow it is
  written when it is come to; in others a test of its own uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)

_FENCE = re.compile(r"^(`{3,})([\w+-]*)\s*$")
_MARK = re.compile(r"^<!--\s*(run|prints|follow|file:\s*\S+)\s*-->\s*$")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; ``line`` is where its text starts."""

    page: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{name_of(self.page)}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Of a console block: each command after a ``$``, with the lines of output that follow it."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (found[-1][0][:-1] + line.strip(), [])
            elif found:
                found[-1][1].append(line)
        return found


def name_of(page: Path) -> str:
    """The page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [block for block in _blocks(page) if language in (None, block.language)]


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text("utf-8").splitlines()
    fence, start, language = "", 0, ""
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if not match:
            continue
        if not fence:
            fence, start, language = match.group(1), number + 1, match.group(2)
        elif match.group(1) == fence and not match.group(2):
            above = _MARK.match(lines[start - 2]) if start > 1 else None
            text = "\n".join(lines[start:number]) + "\n"
            yield Block(page, start + 1, language, above.group(1) if above else "", text)
            fence = ""
    assert not fence, f"{name_of(page)}:{start}: a code block that does not end"


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^(`{3,})[\w+-]*\n.*?^\1$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def headings(page: Path) -> list[tuple[int, str]]:
    """Level and text of each heading."""
    return [(len(match[1]), match[2]) for match in re.finditer(r"^(#+) +(.+)$", prose(page), re.MULTILINE)]


def anchors(page: Path) -> set[str]:
    """What a link to this page may name after ``#``, by the rule GitHub follows."""
    words = (re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for _, text in headings(page))
    return set(words)


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures."""
    return _LINK.findall(prose(page))


def same(expected: str, actual: str) -> bool:
    """Whether output is as expected, where ``…`` in the expectation stands for anything."""
    pattern = ".*".join(re.escape(part) for part in _trimmed(expected).split("…"))
    return re.fullmatch(pattern, _trimmed(actual), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
