"""The pages of a checkpoint's changes and of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from nicegui import ui

from kingdom.web.dashboard.components import badge, button, code, empty, labelled, link, tab, tag, text, web_element
from kingdom.web.dashboard.formats import court_timezone, format_minute, page_url
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.actions import WorkflowActions
from kingdom.web.envelope import not_found
from kingdom.web.views.checkpoints import BASE_POINT, CheckpointInfo, DiffHunk, DiffLine, read_diff, side_by_side
from kingdom.web.views.workflow_output import read_report
from kingdom.web.views.workflows import read_workflow

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.words import Translations
    from kingdom.web.views.checkpoints import ChangedFile, CheckpointDiff
    from kingdom.web.views.workflows import WorkflowFull


# ── Diff of a file ──


MAX_FILE_ROWS: Final = 2000
"""Rows shown per file; more would make the browser slow."""
_MAX_DIFF_LINE_CHARS: Final = 2000  # lines of minified code are longer


class DiffTable(ui.element, component="diff_table.js"):
    """A diff as one element, side by side or inline. The browser renders the rows, as text, in colours of the code."""

    def __init__(self, rows: Sequence[list[Any]], label: str, *, inline: bool) -> None:
        super().__init__()
        self._props["inline"] = inline
        self._props["rows"] = list(rows)
        self._props["label"] = label


def diff_rows(file: ChangedFile) -> tuple[list[list[Any]], bool]:
    """Return the rows of a file for :class:`DiffTable`, and whether there are more."""
    rows = list(islice(_rows(file.hunks), MAX_FILE_ROWS + 1))
    return rows[:MAX_FILE_ROWS], len(rows) > MAX_FILE_ROWS


def _rows(hunks: Sequence[DiffHunk]) -> Iterator[list[Any]]:
    for hunk in hunks:
        place = f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@ {hunk.heading}"
        yield ["hunk", None, place, None, None]
        for old, new in side_by_side(hunk):
            kind = "same" if old is not None and old.kind == " " else "changed"
            yield [kind, old and old.old_number, _line_text(old), new and new.new_number, _line_text(new)]


def _line_text(line: DiffLine | None) -> str | None:
    if line is None:
        return None
    words = line.text.removesuffix("\r")
    return words if len(words) <= _MAX_DIFF_LINE_CHARS else f"{words[:_MAX_DIFF_LINE_CHARS]}…"


# ── Checkpoint page ──


INLINE: Final = "inline"
_MAX_ROWS_SHOWN: Final = 3000  # of all files together; further files open on request
_STATUS_OF_CHANGE: Final = {"added": "completed", "deleted": "failed"}


@page("/workflows/{workflow_id}/checkpoints/{checkpoint_id}", title="checkpoint.title", nav="workflows")
async def checkpoint_page(
    visit: Visit, workflow_id: str, checkpoint_id: str, against: str = "", view: str = ""
) -> None:
    """The page of a checkpoint: its changes since the start of its work, of the branch, or since another checkpoint."""
    words = visit.words
    full = await read_workflow(visit.context, workflow_id)
    point = next((one for one in full.checkpoints if one.id == checkpoint_id), None)
    if point is None:
        raise not_found("WFL", "checkpoint", checkpoint_id)
    diff = await read_diff(visit.context, workflow_id, checkpoint_id, against=against or None)
    work = point.work_name or point.work_id
    actions = page_head(words("checkpoint.of", work=work), above=(full.name, page_url("workflows", workflow_id)))
    commands = WorkflowActions(visit, workflow_id, full.name, lambda: None)

    async def resume() -> None:
        if await commands.resume_from(point.id, work):
            ui.navigate.to(page_url("workflows", workflow_id))

    if visit.may("resumeWorkflow"):
        with actions:
            going_back = button(words("checkpoint.resume"), resume, icon="replay")
            going_back.set_enabled("goBack" in full.allowed and point.valid)
            button(words("checkpoint.fork"), lambda: commands.fork(point.id, work), icon="call_split")
    with tag("div", "k-row k-wrapping k-filters"):
        text(format_minute(point.created_at, await court_timezone(visit)), "k-muted")
        if not point.valid:
            text(words("checkpoint.left"), "k-badge k-tone-idle")
        _draw_against(visit, full, point, against, view)
        _draw_views(visit, full, point, against, view)
    _draw_changes(visit, diff, inline=view == INLINE)


def _draw_views(visit: Visit, full: WorkflowFull, point: CheckpointInfo, against: str, view: str) -> None:
    """Draw the choice between side by side and inline."""
    with tag("nav", "k-tabs", aria_label=visit.words("checkpoint.views")):
        for name, words in (("", "checkpoint.sides"), (INLINE, "checkpoint.inline")):
            target = page_url("workflows", full.id, "checkpoints", point.id, against=against, view=name)
            tab(visit.words(words), target, chosen=(view == INLINE) == (name == INLINE))


def _draw_against(visit: Visit, full: WorkflowFull, point: CheckpointInfo, against: str, view: str) -> None:
    words = visit.words
    others = {
        one.id: words("checkpoint.against.one", work=one.work_name or one.work_id, number=one.attempt)
        for one in full.checkpoints
        if one.id != point.id
    }
    choices = {"": words("checkpoint.against.before"), BASE_POINT: words("checkpoint.against.base"), **others}

    def choose() -> None:
        ui.navigate.to(page_url("workflows", full.id, "checkpoints", point.id, against=field.value, view=view))

    field = ui.select(choices, value=against if against in choices else "", on_change=choose)
    labelled(field.props("outlined dense").classes("k-field k-against"), words("checkpoint.against"))


def _draw_changes(visit: Visit, diff: CheckpointDiff, *, inline: bool) -> None:
    words = visit.words
    if not any(repository.files for repository in diff.repositories):
        empty(words("checkpoint.same"), words("checkpoint.same.hint"), page=True)
        return
    room = _MAX_ROWS_SHOWN
    for number, repository in enumerate(diff.repositories):
        if not repository.files:
            continue
        with tag("section", "k-column k-repository", aria_label=repository.name):
            with tag("div", "k-row k-wrapping"):
                text(repository.name, name="h2")
                text(f"{repository.older[:10]} → {repository.newer[:10]}", "k-mono k-muted")
                text(words("checkpoint.files", count=len(repository.files)), "k-muted")
            _draw_file_list(visit, number, repository.files)
            for place, file in enumerate(repository.files):
                room = _draw_file(visit, f"file-{number}-{place}", file, room, inline=inline)
            if repository.truncated:
                text(words("checkpoint.more"), "k-muted", name="div")


def _draw_file_list(visit: Visit, number: int, files: list[ChangedFile]) -> None:
    with tag("nav", "k-card k-files", aria_label=visit.words("checkpoint.filelist")):
        for place, file in enumerate(files):
            with tag("div", "k-row"):
                _draw_counts(file)
                link(_file_name(file), f"#file-{number}-{place}", "k-mono k-wrap")


def _draw_file(visit: Visit, anchor: str, file: ChangedFile, room: int, *, inline: bool) -> int:
    words = visit.words
    rows, more = diff_rows(file)
    with tag("section", "k-card k-file", id=anchor, aria_label=file.path):
        with tag("header", "k-card-head"):
            text(_file_name(file), "k-mono k-wrap", name="h3")
            badge(words.of("checkpoint.change", file.status), _STATUS_OF_CHANGE.get(file.status, "created"))
            with tag("div", "k-card-side"):
                _draw_counts(file)
        if file.binary:
            text(words("checkpoint.binary"), "k-muted k-pad", name="div")
            return room
        with tag("div", "k-scroll", tabindex="0", role="group", aria_label=file.path) as body:
            if len(rows) <= room:
                DiffTable(rows, file.path, inline=inline)
            else:
                _draw_later(visit, body, rows, file.path, inline=inline)
        if file.truncated or more:
            text(words("checkpoint.cut"), "k-muted k-pad", name="div")
    return max(0, room - len(rows))


def _draw_later(visit: Visit, body: Element, rows: list[list[object]], label: str, *, inline: bool) -> None:
    def show() -> None:
        body.clear()
        with body:
            DiffTable(rows, label, inline=inline)

    button(visit.words("checkpoint.show", count=len(rows)), show).classes("k-pad")


def _draw_counts(file: ChangedFile) -> None:
    text("" if file.added is None else f"+{file.added}", "k-text-ok k-mono k-lines-count")
    text("" if file.removed is None else f"−{file.removed}", "k-text-bad k-mono k-lines-count")


def _file_name(file: ChangedFile) -> str:
    return file.path if file.old_path is None else f"{file.old_path} → {file.path}"


# ── Report page ──


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
