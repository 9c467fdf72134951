"""Check the built site: every internal link and anchor exists, and nothing is loaded from another host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes whose address the browser loads by itself when it shows the page.
_LOADED = {
    ("script", "src"), ("img", "src"), ("img", "srcset"), ("source", "src"), ("source", "srcset"), ("iframe", "src"),
    ("video", "src"), ("audio", "src"), ("embed", "src"), ("object", "data"), ("input", "src"), ("use", "href"),
}  # fmt: skip
_LOADED_RELATIONS = ("stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "manifest", "modulepreload")
_IN_STYLES = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(?!data:|#)([^'\")\s]+)")


@dataclass
class Page(HTMLParser):
    """What one page links to, what it loads, and which anchors it has."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    mermaid: bool = False  # a diagram, for which the theme loads a library from another host

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses and the id of an element."""
        named = {name: value or "" for name, value in attrs}
        self.anchors.update(named[name] for name in ("id", "name") if name in named)
        self.mermaid = self.mermaid or "mermaid" in named.get("class", "").split()
        self.loaded += [named[name] for of, name in _LOADED if of == tag and name in named]
        self.loaded += _IN_STYLES.findall(named.get("style", ""))
        if tag == "link" and "href" in named:
            relations = named.get("rel", "").split()
            (self.loaded if set(relations) & set(_LOADED_RELATIONS) else self.links).append(named["href"])
        elif tag in ("a", "area") and "href" in named:
            self.links.append(named["href"])


def problems(site: Path) -> list[str]:
    """Return what is wrong with a built site, a line each."""
    pages = {path: _parsed(path) for path in sorted(site.rglob("*.html"))}
    found = [f"{site} has no pages"] if not pages else []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {address} from another host" for address in page.loaded if _foreign(address)]
        found += [f"{name}: a diagram that needs a library of another host"] * page.mermaid
        for link in page.links + [address for address in page.loaded if not _foreign(address)]:
            if (why := _broken(site, path, link, pages)) is not None:
                found.append(f"{name}: {link} {why}")
    for sheet in sorted(site.rglob("*.css")):
        foreign = [address for address in _IN_STYLES.findall(sheet.read_text()) if _foreign(address)]
        found += [f"{sheet.relative_to(site)}: loads {address} from another host" for address in foreign]
    return found


def _parsed(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def _foreign(address: str) -> bool:
    return urlsplit(address).netloc != ""


def _broken(site: Path, page: Path, link: str, pages: dict[Path, Page]) -> str | None:
    split = urlsplit(link)
    if split.scheme or split.netloc:
        return None
    if split.path.startswith("/"):
        return "is absolute: it does not work from a folder"
    target = (page.parent / unquote(split.path)).resolve() if split.path else page
    if target.is_dir():
        target = target / "index.html"
    if not target.is_relative_to(site.resolve()) and target != page:
        return "leaves the site"
    if not target.exists():
        return "does not exist"
    known = pages.get(target) or pages.get(site / target.relative_to(site.resolve())) if split.path else pages[page]
    if split.fragment and known is not None and unquote(split.fragment) not in known.anchors | {"__top"}:
        return "has no such anchor"
    return None
