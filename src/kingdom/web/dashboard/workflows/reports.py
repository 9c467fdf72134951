"""A report, which an agent wrote in Markdown, as elements of a page.

No HTML is made: each word becomes the text of an element, markup in it is shown as it stands, an image is a link to
it, and links go to the web only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from kingdom.web.dashboard.building import tag, text

if TYPE_CHECKING:
    from nicegui.element import Element

_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_SCHEMES: Final = ("http", "https", "mailto")
_LONGEST: Final = 200_000  # characters that are shown as Markdown; a longer report is shown as plain text
_TAGS: Final = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "em", "strong", "s",
     "table", "thead", "tbody", "tr", "th", "td"}
)  # fmt: skip


def show_report(markdown: str) -> None:
    """Put a report into the element that is being filled."""
    with tag("article", "k-report"):
        if len(markdown) > _LONGEST:
            text(markdown, name="pre")
        else:
            _show(SyntaxTreeNode(_PARSER.parse(markdown)))


def _show(node: SyntaxTreeNode) -> None:
    if node.type in ("root", "inline"):
        _show_all(node.children)
    elif node.type in ("fence", "code_block"):
        with tag("pre", tabindex="0"):
            text(node.content, name="code")
    elif node.type == "code_inline":
        text(node.content, name="code")
    elif node.type in ("hr", "hardbreak"):
        tag("hr" if node.type == "hr" else "br")
    elif node.type == "softbreak":
        text("\n")
    elif node.type == "image":
        source = str(node.attrs.get("src", ""))
        with _link(source):
            text(node.content or source)
    elif node.type == "link":
        with _link(str(node.attrs.get("href", ""))):
            _show_all(node.children)
    elif node.tag in _TAGS:
        with tag(node.tag) as made:
            made.props.set_optional("start", node.attrs.get("start"))
            _show_all(node.children)
    elif node.type == "text":
        text(node.content)


def _show_all(nodes: list[SyntaxTreeNode]) -> None:
    for node in nodes:
        _show(node)


def _link(url: str) -> Element:
    """A link to the web; anything else is only words."""
    try:
        leads_to_web = urlsplit(url).scheme.lower() in _SCHEMES
    except ValueError:  # http://[nothing]/
        leads_to_web = False
    if not leads_to_web:
        return tag("span")
    return tag("a", href=url, target="_blank", rel="noopener noreferrer nofollow")
