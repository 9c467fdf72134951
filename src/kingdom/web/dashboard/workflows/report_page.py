"""The page of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from nicegui import ui

from kingdom.web.dashboard.components import code, tag, text, web_element
from kingdom.web.dashboard.formats import page_url
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.workflow_output import read_report
from kingdom.web.views.workflows import read_workflow

if TYPE_CHECKING:
    from kingdom.web.dashboard.words import Translations


_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MAX_DIAGRAM_CHARS: Final = 20_000  # a longer diagram is shown as text
_MAX_MARKDOWN_CHARS: Final = 200_000  # a longer report is shown as plain text
_REPORT_TAGS: Final = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "em", "strong", "s",
     "table", "thead", "tbody", "tr", "th", "td"}
)  # fmt: skip


class CodeBlock(ui.element, component="code_block.js"):
    """A block of code in the colours of its language, as one element."""

    def __init__(self, code: str, language: str) -> None:
        super().__init__()
        self._props["code"] = code
        self._props["language"] = language


class Diagram(ui.element, component="diagram.js"):
    """A Mermaid diagram, drawn in the browser by the library that comes with NiceGUI and shown as an image."""

    def __init__(self, code: str, words: Translations) -> None:
        super().__init__()
        self._props["code"] = code
        self._props["label"] = words("report.diagram")
        self._props["summary"] = words("report.diagram.source")


def draw_report(markdown: str, words: Translations) -> None:
    """Draw a report, which an agent wrote in Markdown, as elements.

    No HTML is generated: every word becomes the text of an element, markup is shown literally, an image becomes a link
    to it, and only web links are links. A diagram becomes an image that is made in the browser.
    """
    with tag("article", "k-report"):
        if len(markdown) > _MAX_MARKDOWN_CHARS:
            text(markdown, name="pre")
        else:
            _draw_node(SyntaxTreeNode(_PARSER.parse(markdown)), words)


def _draw_node(node: SyntaxTreeNode, words: Translations) -> None:
    if node.type in ("root", "inline"):
        _draw_nodes(node.children, words)
    elif node.type == "fence" and node.info.strip() == "mermaid" and len(node.content) <= _MAX_DIAGRAM_CHARS:
        Diagram(node.content, words)
    elif node.type in ("fence", "code_block"):
        CodeBlock(node.content.removesuffix("\n"), node.info.split(" ")[0] if node.type == "fence" else "")
    elif node.type == "code_inline":
        text(node.content, name="code")
    elif node.type in ("hr", "hardbreak"):
        tag("hr" if node.type == "hr" else "br")
    elif node.type == "softbreak":
        text("\n")
    elif node.type == "image":
        source = str(node.attrs.get("src", ""))
        with web_element(source):
            text(node.content or source)
    elif node.type == "link":
        with web_element(str(node.attrs.get("href", ""))):
            _draw_nodes(node.children, words)
    elif node.tag in _REPORT_TAGS:
        with tag(node.tag) as made:
            made.props.set_optional("start", node.attrs.get("start"))
            _draw_nodes(node.children, words)
    elif node.type == "text":
        text(node.content)


def _draw_nodes(nodes: list[SyntaxTreeNode], words: Translations) -> None:
    for node in nodes:
        _draw_node(node, words)


@page("/workflows/{workflow_id}/reports/{report_id}", title="report.title", nav="workflows")
async def report_page(visit: Visit, workflow_id: str, report_id: str) -> None:
    """The page of one report."""
    full = await read_workflow(visit.context, workflow_id)
    found = await read_report(visit.context, workflow_id, report_id)
    page_head(f"{found.work} / {found.task}", above=(full.name, page_url("workflows", workflow_id)))
    text(visit.words("report.written"), "k-muted k-small", name="div")
    with tag("div", "k-card k-pad k-report-card"):
        draw_report(found.text, visit.words)
    with tag("details", "k-source"):
        text(visit.words("report.source"), name="summary")
        code(found.text)
