"""The trace of a document as a timeline, and the documents that belong to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from kingdom.web.dashboard.components import RowList, badge, cell, link, list_row, part, row, tag, text
from kingdom.web.dashboard.formats import document_url, format_clock
from kingdom.web.dashboard.visit import Visit

if TYPE_CHECKING:
    from kingdom.web.dashboard.components import CellPart, ListRow
    from kingdom.web.dashboard.theme import Tone
    from kingdom.web.views.document_links import DocumentLink
    from kingdom.web.views.documents import TraceLine

_MAX_TRACE_LINES: Final = 300
_ID_PATTERN: Final = re.compile(
    r"(?<![\w.:@+-])((?:task|msg)-\d{8}-\d{3,}\b|evt-[a-z0-9_]+-(?:[A-Za-z0-9._:@+-]*[A-Za-z0-9_])?)"
)
_TONE_BY_WORD: Final[tuple[tuple[str, Tone], ...]] = (
    ("failed", "bad"),
    ("error", "bad"),
    ("needs_human", "warn"),
    ("ended as success", "ok"),
    ("completed", "ok"),
    ("started", "busy"),
)


def draw_trace(visit: Visit, zone: tzinfo, about: str, lines: Sequence[TraceLine]) -> None:
    """Draw the steps of a trace. ``about`` is the id that it was made for."""
    if len(lines) > _MAX_TRACE_LINES:
        with tag("p", "k-muted k-small"):
            text(visit.words("task.story.cut", n=len(lines) - _MAX_TRACE_LINES) + " ")
            link(visit.words("task.story.all"), f"/logs?{urlencode({'q': about})}")
    rows = [_trace_row(visit, zone, number, one) for number, one in enumerate(lines)]
    RowList("list", visit.words("task.story"), "k-timeline").show(rows[-_MAX_TRACE_LINES:])


def with_links(content: str, classes: str = "") -> list[CellPart]:
    """Split a text into parts of these classes; the ids of documents in it are links."""
    return [
        part(one, "nicegui-link", href=document_url(one)) if index % 2 else part(one, classes)
        for index, one in enumerate(_ID_PATTERN.split(content))
        if one
    ]


def _trace_row(visit: Visit, zone: tzinfo, number: int, step: TraceLine) -> ListRow:
    tone = next((tone for word, tone in _TONE_BY_WORD if word in step.what), None)
    at = part(format_clock(step.ts, zone, now=visit.context.clock()), "k-muted k-mono", title=step.ts)
    where = part(step.where, "k-muted k-small k-mono k-wrap k-block")
    cells = [cell([at]), cell(step.who, "k-strong k-clip"), cell([*with_links(step.what), where], "k-wrap")]
    return list_row(str(number), cells, f"k-at-{tone}" if tone else "")


def draw_links(visit: Visit, links: Sequence[DocumentLink], zone: tzinfo) -> None:
    """Draw the documents that belong to one."""
    words = visit.words
    if not links:
        text(words("events.linked.none"), "k-muted k-small k-pad", name="p")
        return
    with tag("ul", "k-lines"):
        for one in links:
            with tag("li", "k-stack k-tight", data_linked=one.stream):
                with row("k-wrapping"):
                    text(words(f"events.one.{one.stream}"), "k-muted k-small")
                    link(one.id, document_url(one.id), "k-mono")
                    badge(words.of("status", one.status), one.status)
                    text(format_clock(one.created_at, zone, now=visit.context.clock()), "k-muted k-small k-push")
                text(one.title or one.type, "k-wrap k-clamp")
