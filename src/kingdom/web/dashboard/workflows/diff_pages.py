"""The pages of a checkpoint's changes: its files in parts, and one file in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from kingdom.web.dashboard.components import badge, button, empty, labelled, link, tab, tag, text
from kingdom.web.dashboard.formats import court_timezone, format_minute, page_url
from kingdom.web.dashboard.pager import PartLinks, draw_parts, part_numbers
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.actions import WorkflowActions
from kingdom.web.envelope import not_found
from kingdom.web.views.changed_files import PART_FILES, PART_LINES, read_file_part, read_files_part
from kingdom.web.views.checkpoints import BASE_POINT, CheckpointInfo, DiffHunk, DiffLine, side_by_side
from kingdom.web.views.workflows import read_workflow

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.words import Translations
    from kingdom.web.views.changed_files import FilesPart
    from kingdom.web.views.checkpoints import ChangedFile
    from kingdom.web.views.workflows import WorkflowFull


# ── Diff of a file ──


MAX_FILE_ROWS: Final = 2000
"""Rows of a file among others; the page of the file has all."""
_MAX_DIFF_LINE_CHARS: Final = 2000  # the same; lines of minified code are longer


class DiffTable(ui.element, component="diff_table.js"):
    """A diff as one element, side by side or inline. The browser renders the rows, as text, in colours of the code."""

    def __init__(self, rows: Sequence[list[Any]], label: str, *, inline: bool) -> None:
        super().__init__()
        self._props["inline"] = inline
        self._props["rows"] = list(rows)
        self._props["label"] = label


def diff_rows(file: ChangedFile) -> tuple[list[list[Any]], bool]:
    """Return the rows of a file for :class:`DiffTable`, and whether the file has more, or longer ones."""
    rows = list(islice(_rows(file.hunks, _MAX_DIFF_LINE_CHARS), MAX_FILE_ROWS + 1))
    long = any(len(line.text) > _MAX_DIFF_LINE_CHARS for hunk in file.hunks for line in hunk.lines)
    return rows[:MAX_FILE_ROWS], len(rows) > MAX_FILE_ROWS or long


def _rows(hunks: Sequence[DiffHunk], max_chars: int | None) -> Iterator[list[Any]]:
    for hunk in hunks:
        place = f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@ {hunk.heading}"
        yield ["hunk", None, place, None, None]
        for old, new in side_by_side(hunk):
            kind = "same" if old is not None and old.kind == " " else "changed"
            texts = [_line_text(line, max_chars) for line in (old, new)]
            yield [kind, old and old.old_number, texts[0], new and new.new_number, texts[1]]


def _line_text(line: DiffLine | None, max_chars: int | None) -> str | None:
    if line is None:
        return None
    words = line.text.removesuffix("\r")
    return words if max_chars is None or len(words) <= max_chars else f"{words[:max_chars]}…"


# ── Addresses ──


INLINE: Final = "inline"


@dataclass(frozen=True, slots=True)
class DiffQuery:
    """Which changes are shown, and how, as in the address of a page."""

    workflow_id: str
    checkpoint_id: str
    against: str = ""
    view: str = ""

    @property
    def inline(self) -> bool:
        return self.view == INLINE

    def address(self, file: int | None = None, first: int = 0) -> str:
        """Return the URL of the files from a number on, or of the lines of one file."""
        one = () if file is None else ("files", str(file))
        return page_url(
            "workflows", self.workflow_id, "checkpoints", self.checkpoint_id, *one,
            against=self.against, view=self.view, first=str(first) if first else None,
        )  # fmt: skip


def _number(given: str) -> int:
    """Return the number that an address names; 0 for anything that is none."""
    return min(int(given), 2**31) if given.isascii() and given.isdigit() and len(given) < 12 else 0


# ── Checkpoint page ──


_MAX_ROWS_SHOWN: Final = 3000  # of all files together; further files open on request
_STATUS_OF_CHANGE: Final = {"added": "completed", "deleted": "failed"}


@page("/workflows/{workflow_id}/checkpoints/{checkpoint_id}", title="checkpoint.title", nav="workflows")
async def checkpoint_page(
    visit: Visit, workflow_id: str, checkpoint_id: str, against: str = "", view: str = "", first: str = ""
) -> None:
    """The page of a checkpoint: its changes since the start of its work, of the branch, or since another checkpoint.

    ``first`` is the number of the first file that is shown.
    """
    words, query = visit.words, DiffQuery(workflow_id, checkpoint_id, against, view)
    full, point = await _read_point(visit, query)
    found = await read_files_part(
        visit.context, workflow_id, checkpoint_id, against=against or None, first=_number(first)
    )
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
        _draw_against(visit, full, query)
        _draw_views(visit, query)
    _draw_changes(visit, found, query)


async def _read_point(visit: Visit, query: DiffQuery) -> tuple[WorkflowFull, CheckpointInfo]:
    full = await read_workflow(visit.context, query.workflow_id)
    point = next((one for one in full.checkpoints if one.id == query.checkpoint_id), None)
    if point is None:
        raise not_found("WFL", "checkpoint", query.checkpoint_id)
    return full, point


def _draw_views(visit: Visit, query: DiffQuery, file: int | None = None, first: int = 0) -> None:
    """Draw the choice between side by side and inline."""
    with tag("nav", "k-tabs", aria_label=visit.words("checkpoint.views")):
        for name, words in (("", "checkpoint.sides"), (INLINE, "checkpoint.inline")):
            target = replace(query, view=name).address(file, first)
            tab(visit.words(words), target, chosen=query.inline == (name == INLINE))


def _draw_against(visit: Visit, full: WorkflowFull, query: DiffQuery) -> None:
    words = visit.words
    others = {
        one.id: words("checkpoint.against.one", work=one.work_name or one.work_id, number=one.attempt)
        for one in full.checkpoints
        if one.id != query.checkpoint_id
    }
    choices = {"": words("checkpoint.against.before"), BASE_POINT: words("checkpoint.against.base"), **others}

    def choose() -> None:
        ui.navigate.to(replace(query, against=field.value).address())

    field = ui.select(choices, value=query.against if query.against in choices else "", on_change=choose)
    labelled(field.props("outlined dense").classes("k-field k-against"), words("checkpoint.against"))


def _draw_changes(visit: Visit, found: FilesPart, query: DiffQuery) -> None:
    words = visit.words
    if not found.total:
        empty(words("checkpoint.same"), words("checkpoint.same.hint"), page=True)
        return
    links = _part_links(words, "checkpoint.files.part", found.first, found.count, found.total, PART_FILES, query)
    several = found.total > found.count
    if several:
        draw_parts(visit, links)
    room, number = _MAX_ROWS_SHOWN, found.first
    for repository in found.repositories:
        with tag("section", "k-column k-repository", aria_label=repository.name):
            with tag("div", "k-row k-wrapping"):
                text(repository.name, name="h2")
                text(f"{repository.older[:10]} → {repository.newer[:10]}", "k-mono k-muted")
                if not several:
                    text(words("checkpoint.files", count=len(repository.files)), "k-muted")
            _draw_file_list(visit, number, repository.files)
            for file in repository.files:
                room = _draw_file(visit, number, file, room, query)
                number += 1
    if several:
        draw_parts(visit, links, again=True)


def _part_links(
    words: Translations, key: str, first: int, count: int, total: int, size: int, query: DiffQuery,
    file: int | None = None,
) -> PartLinks:  # fmt: skip
    shown = words(key, first=f"{first + 1:,}", last=f"{first + count:,}", total=f"{total:,}")
    begins = part_numbers(first, count, total, size)
    urls = {name: None if begin is None else query.address(file, begin) for name, begin in begins.items()}
    return PartLinks(shown, **urls)


def _draw_file_list(visit: Visit, number: int, files: list[ChangedFile]) -> None:
    with tag("nav", "k-card k-files", aria_label=visit.words("checkpoint.filelist")):
        for place, file in enumerate(files, number):
            with tag("div", "k-row"):
                _draw_counts(file)
                link(_file_name(file), f"#file-{place}", "k-mono k-wrap")


def _draw_file(visit: Visit, number: int, file: ChangedFile, room: int, query: DiffQuery) -> int:
    """Draw a file among others, as far as there is room for its rows; return what room is left."""
    words = visit.words
    rows, more = diff_rows(file)
    with tag("section", "k-card k-file", id=f"file-{number}", aria_label=file.path):
        _draw_file_head(words, file, "h3")
        if file.binary:
            text(words("checkpoint.binary"), "k-muted k-pad", name="div")
            return room
        with tag("div", "k-scroll", tabindex="0", role="group", aria_label=file.path) as body:
            if len(rows) <= room:
                DiffTable(rows, file.path, inline=query.inline)
            else:
                _draw_later(visit, body, rows, file.path, inline=query.inline)
        if file.truncated or more:
            with tag("p", "k-muted k-pad"):
                text(words("checkpoint.cut") + " ")
                link(words("checkpoint.whole"), query.address(number)).props["data-whole"] = str(number)
    return max(0, room - len(rows))


def _draw_file_head(words: Translations, file: ChangedFile, heading: str) -> None:
    with tag("header", "k-card-head"):
        text(_file_name(file), "k-mono k-wrap", name=heading)
        badge(words.of("checkpoint.change", file.status), _STATUS_OF_CHANGE.get(file.status, "created"))
        with tag("div", "k-card-side"):
            _draw_counts(file)


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


# ── Page of one file ──


@page("/workflows/{workflow_id}/checkpoints/{checkpoint_id}/files/{number}", title="checkpoint.diff", nav="workflows")
async def file_page(
    visit: Visit, workflow_id: str, checkpoint_id: str, number: str, against: str = "", view: str = "", first: str = ""
) -> None:
    """The whole diff of one file, in parts; ``first`` is the number of the first line that is shown."""
    words, query = visit.words, DiffQuery(workflow_id, checkpoint_id, against, view)
    if not (number.isascii() and number.isdigit()):
        raise not_found("WFL", "changed file", number)
    _, point = await _read_point(visit, query)
    place = _number(number)
    found = await read_file_part(
        visit.context, workflow_id, checkpoint_id, place, against=against or None, first=_number(first)
    )
    file, among = found.file, place // PART_FILES * PART_FILES
    work = point.work_name or point.work_id
    page_head(_file_name(file), above=(words("checkpoint.of", work=work), f"{query.address(first=among)}#file-{place}"))
    with tag("div", "k-row k-wrapping k-filters"):
        text(found.repository.name)
        text(f"{found.repository.older[:10]} → {found.repository.newer[:10]}", "k-mono k-muted")
        _draw_views(visit, query, place, found.first)
    links = _part_links(words, "checkpoint.lines.part", found.first, found.count, found.total, PART_LINES, query, place)
    if found.total > found.count:
        draw_parts(visit, links)
    with tag("section", "k-card k-file", aria_label=file.path):
        _draw_file_head(words, file, "h2")
        if file.binary:
            text(words("checkpoint.binary"), "k-muted k-pad", name="div")
        else:
            with tag("div", "k-scroll", tabindex="0", role="group", aria_label=file.path):
                DiffTable(list(_rows(file.hunks, None)), file.path, inline=query.inline)
        if file.truncated:
            text(words("checkpoint.toolong"), "k-muted k-pad", name="p")
    if found.total > found.count:
        draw_parts(visit, links, again=True)
