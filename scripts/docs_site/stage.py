"""The pages of the site: those of ``docs``, and every file of the repository that one of them links to.

The repository has pages in ``docs`` and beside its sources; the site has one tree. Links between them are rewritten. A
linked file of code becomes a page that shows it, and a linked folder one that lists it.
"""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path, PurePosixPath

_LINK = re.compile(r"(\]\(|<img src=\"|<a href=\"|<source srcset=\")([^)\s\"]+)")
_KOREAN = ".ko.md"
_LANGUAGES = {".py": "python", ".json": "json", ".yaml": "yaml", ".sql": "sql", ".md": "markdown"}
_START = ("README.md", "README.ko.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


class Broken(Exception):
    """A page links to what does not exist."""


def place(path: PurePosixPath, *, folder: bool = False) -> PurePosixPath:
    """Return where a file (or folder) of the repository is in the sources of the site."""
    text = str(path)
    if text.endswith(_KOREAN):
        return PurePosixPath("ko") / place(PurePosixPath(text.removesuffix(_KOREAN) + ".md"))
    if text == "README.md":
        return PurePosixPath("index.md")
    if text == "docs/README.md":
        return PurePosixPath("contents.md")
    if folder:
        return PurePosixPath("source") / text / "index.md"
    if text.startswith("docs/"):
        return PurePosixPath(text.removeprefix("docs/"))
    if path.suffix == ".md" and path.parts[0] in (path.name, "examples"):
        return PurePosixPath("project") / (path.name.lower() if len(path.parts) == 1 else text)
    return PurePosixPath("source") / f"{text}.md" if path.suffix not in (".png", ".svg") else PurePosixPath(text)


class Stage:
    """Copies pages and what they link to."""

    def __init__(self, root: Path, target: Path, tracked: list[str]) -> None:
        self._root = root
        self._target = target
        self._tracked = tracked
        self._waiting: deque[PurePosixPath] = deque()
        self._known: set[PurePosixPath] = set()

    def fill(self) -> None:
        """Write every page."""
        for name in self._tracked:
            if name in _START or (name.startswith("docs/") and name.endswith((".md", ".png", ".svg", ".json"))):
                self._want(PurePosixPath(name))
        while self._waiting:
            self._write(self._waiting.popleft())

    def _want(self, path: PurePosixPath) -> None:
        if path not in self._known:
            self._known.add(path)
            self._waiting.append(path)

    def _place(self, path: PurePosixPath) -> PurePosixPath:
        return place(path, folder=(self._root / path).is_dir())

    def _write(self, path: PurePosixPath) -> None:
        target = self._target / self._place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if (self._root / path).is_dir():
            target.write_text(self._listing(path))
        elif self._place(path).parts[0] == "source":
            target.write_text(_code(path, (self._root / path).read_text()))
        elif path.suffix == ".md":
            target.write_text(self._rewritten(path, (self._root / path).read_text()))
        else:
            target.write_bytes((self._root / path).read_bytes())

    def _listing(self, folder: PurePosixPath) -> str:
        files = [PurePosixPath(name) for name in self._tracked if name.startswith(f"{folder}/")]
        here = self._place(folder).parent
        lines = []
        for path in files:
            self._want(path)
            lines.append(f"- [{path.relative_to(folder)}]({_relative(self._place(path), here)})")
        return "\n".join([_plain_head(folder), "", *lines, ""])

    def _rewritten(self, path: PurePosixPath, text: str) -> str:
        """Rewrite the links of a page, outside of its blocks of code."""
        parts = re.split(r"(?ms)^(```.*?^```$|~~~.*?^~~~$)", text)
        return "".join(
            part if number % 2 else _LINK.sub(lambda found: found[1] + self._link(path, found[2]), part)
            for number, part in enumerate(parts)
        )

    def _link(self, page: PurePosixPath, link: str) -> str:
        if re.match(r"[a-z][a-z0-9+.-]*:|#", link):
            return link
        name, mark, anchor = link.partition("#")
        target = PurePosixPath(os.path.normpath(page.parent / name))
        if not (self._root / target).exists():
            raise Broken(f"{page}: {link} does not exist")
        self._want(target)
        return f"{_relative(self._place(target), self._place(page).parent)}{mark}{anchor}"


def _relative(target: PurePosixPath, folder: PurePosixPath) -> str:
    return os.path.relpath(target, folder)


def _code(path: PurePosixPath, text: str) -> str:
    fence = "`" * 5
    language = _LANGUAGES.get(path.suffix, "text")
    return f"{_plain_head(path)}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _plain_head(path: PurePosixPath) -> str:
    """Return the front matter and title of a page that shows a source; it is not found by a search for words."""
    return f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`"
