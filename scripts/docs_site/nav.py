"""The navigation of the site, by intent: read from docs/README.md, which names every page."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from scripts.docs_site.reference import MODULES, OPENAPI
from scripts.docs_site.stage import place

_INTENTS = {"Learn": "Tutorials", "Do": "How-to guides", "Look up": "Reference", "Understand": "Explanation"}
_PAGE = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)")

Nav = list[dict[str, Any]]

_PROJECT: Nav = [
    {"Changelog": "project/changelog.md"},
    {"Contributing": "project/contributing.md"},
    {"Security": "project/security.md"},
    {"Trading, the large example": "project/examples/trading/README.md"},
]


def _pages(section: str) -> Nav:
    """Return the pages of a section; a line such as "With the bus:" begins a group of them."""
    pages: Nav = []
    group = pages
    for line in section.splitlines():
        if re.match(r"[A-Z].*:$", line):
            group = []
            pages.append({line[:-1]: group})
        elif line.startswith("- "):
            group += [{title: str(place(PurePosixPath("docs") / link))} for title, link in _PAGE.findall(line)]
    return pages


def navigation(contents: str, korean: list[PurePosixPath]) -> Nav:
    """Return the navigation as MkDocs wants it."""
    sections = {}
    for text in re.split(r"(?m)^## ", contents)[1:]:
        heading, _, rest = text.partition("\n")
        sections[heading] = _pages(rest)
    reference = sections["Look up"]
    reference.append({"Python, from docstrings": [{module: f"{page}.md"} for module, page in MODULES.items()]})
    reference.append({"OpenAPI": f"{OPENAPI}.md"})
    return [
        {"Overview": ["index.md", {"All pages": "contents.md"}]},
        *({title: sections[heading]} for heading, title in _INTENTS.items()),
        {"Project": _PROJECT},
        {"한국어": [str(path) for path in korean]},
    ]
