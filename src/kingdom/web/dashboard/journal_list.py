"""Lines of the journal as a list, with links to the documents they name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final

from kingdom.web.dashboard.components import RowList, cell, list_row, part, tag
from kingdom.web.dashboard.formats import document_url, format_clock
from kingdom.web.dashboard.theme import Tone
from kingdom.web.dashboard.timeline import with_links
from kingdom.web.dashboard.visit import Visit

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.components import ListRow
    from kingdom.web.views.journal import JournalLine

_MAX_LINE_CHARS: Final = 240
_TONE_BY_OUTCOME: Final[dict[str, Tone]] = {
    "failed": "bad",
    "timeout": "bad",
    "killed": "bad",
    "needs_human": "warn",
    "discarded": "warn",
    "completed": "ok",
    "started": "busy",
}


class JournalList:
    """Lines of the journal, newest first. ``none`` draws what is shown without any."""

    def __init__(
        self,
        visit: Visit,
        inside: Element,
        zone: tzinfo,
        none: Callable[[], None],
        classes: str = "",
        *,
        steady: bool = False,
    ) -> None:
        self._visit = visit
        self._zone = zone
        self._none = none
        with inside:
            self._lines = RowList("list", visit.words("court.recent"), f"k-lines k-journal {classes}", steady=steady)
            self._below = tag("div")

    def show(self, lines: Sequence[JournalLine]) -> None:
        """Show these."""
        self._lines.show([self._row(key, line) for key, line in _with_keys(lines)])
        self._below.clear()
        if not lines:
            with self._below:
                self._none()

    def _row(self, key: str, line: JournalLine) -> ListRow:
        tone = _TONE_BY_OUTCOME.get(line.type.rpartition(".")[2])
        task = line.data.get("task_id")
        parts = with_links(_fields_text(line.data), "k-muted")
        if isinstance(task, str) and task.startswith("task-"):
            parts.insert(0, part(task, "nicegui-link k-mono", href=document_url(task)))
        at = format_clock(line.ts, self._zone, now=self._visit.context.clock())
        return list_row(
            key,
            [
                cell([part(at, title=line.ts)], "k-muted k-mono"),
                cell(line.type, f"k-strong {f'k-text-{tone}' if tone else ''}"),
                cell(line.actor, "k-muted k-clip k-hide-narrow"),
                cell(parts, "k-clip k-journal-data"),
            ],
        )


def _fields_text(data: dict[str, Any]) -> str:
    """Join the fields of a line, except its task, in one line of text."""
    shown = (
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
        if name != "task_id" and value not in (None, "", [], {})
    )
    return " ".join(" ".join(shown).split())[:_MAX_LINE_CHARS]


def _with_keys(lines: Sequence[JournalLine]) -> list[tuple[str, JournalLine]]:
    """Give each line a stable key. Equal lines are counted from the oldest, so that newer lines do not change keys."""
    seen: Counter[int] = Counter()
    keyed = []
    for line in reversed(lines):
        base = hash(line.model_dump_json())
        seen[base] += 1
        keyed.append((f"{base:x}.{seen[base]}", line))
    return keyed[::-1]
