"""What happened lately."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kingdom.web.dashboard.components import RowList, cell, empty, part, tag
from kingdom.web.dashboard.components import line as row
from kingdom.web.dashboard.formats import format_clock

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.components import ListRow
    from kingdom.web.dashboard.theme import Tone
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.court import JournalLine

_MAX_LINES: Final = 30
_MAX_LINE_CHARS: Final = 240  # characters of a line
_TONE_BY_OUTCOME: Final[dict[str, Tone]] = {
    "failed": "bad",
    "needs_human": "warn",
    "completed": "ok",
    "started": "busy",
}


class JournalList:
    """The last lines of the journal, the newest first."""

    def __init__(self, visit: Visit, inside: Element, zone: tzinfo) -> None:
        self._visit = visit
        self._zone = zone
        with inside:
            self._lines = RowList("list", visit.words("court.recent"), "k-lines k-journal")
            self._below = tag("div")

    def show(self, lines: Sequence[JournalLine]) -> None:
        """Have these."""
        words = self._visit.words
        self._lines.show([self._row(key, line) for key, line in _with_keys(lines[:_MAX_LINES])])
        self._below.clear()
        if not lines:
            with self._below:
                empty(words("court.recent.none"), words("court.recent.hint"), "kingdom up")

    def _row(self, key: str, line: JournalLine) -> ListRow:
        tone = _TONE_BY_OUTCOME.get(line.type.rpartition(".")[2])
        task = line.data.get("task_id")
        told = [part(_fields_text(line.data), "k-muted")]
        if isinstance(task, str) and task.startswith("task-"):
            told.insert(0, part(task, "nicegui-link k-mono", href=f"/tasks/{quote(task)}"))
        return row(
            key,
            [
                cell(format_clock(line.ts, self._zone, now=self._visit.context.clock()), "k-muted k-mono"),
                cell(line.type, f"k-strong {f'k-text-{tone}' if tone else ''}"),
                cell(line.actor, "k-muted k-clip k-hide-narrow"),
                cell(told, "k-clip k-journal-data"),
            ],
        )


def _fields_text(data: dict[str, Any]) -> str:
    """The fields of a line but its task, in one line."""
    shown = (
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
        if name != "task_id" and value not in (None, "", [], {})
    )
    return " ".join(" ".join(shown).split())[:_MAX_LINE_CHARS]


def _with_keys(lines: Sequence[JournalLine]) -> list[tuple[str, JournalLine]]:
    """Each line with a key that stays its own when newer ones come: equal lines are counted from the oldest."""
    seen: Counter[int] = Counter()
    keyed = []
    for line in reversed(lines):
        base = hash(line.model_dump_json())
        seen[base] += 1
        keyed.append((f"{base:x}.{seen[base]}", line))
    return keyed[::-1]
