"""What happened lately."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final

from kingdom.web.dashboard.building import Keyed, empty, link, tag, text
from kingdom.web.dashboard.building.formats import clock

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.theme import Tone
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.court import JournalLine

_SHOWN: Final = 30
_LONGEST: Final = 240  # characters of a line
_TONES: Final[dict[str, Tone]] = {"failed": "bad", "needs_human": "warn", "completed": "ok", "started": "busy"}


class JournalList:
    """The last lines of the journal, the newest first."""

    def __init__(self, visit: Visit, inside: Element, zone: tzinfo) -> None:
        self._visit = visit
        self._zone = zone
        with inside:
            self._list: Keyed[tuple[str, JournalLine]] = Keyed(
                tag("ol", "k-lines k-journal", aria_live="off"), lambda one: one[0], self._draw, self._nothing
            )

    def show(self, lines: Sequence[JournalLine]) -> None:
        """Have these."""
        self._list.show(_numbered(lines[:_SHOWN]))

    def _nothing(self) -> None:
        words = self._visit.words
        with tag("li"):
            empty(words("court.recent.none"), words("court.recent.hint"), "kingdom up")

    def _draw(self, item: tuple[str, JournalLine]) -> None:
        line = item[1]
        tone = _TONES.get(line.type.rpartition(".")[2])
        with tag("li"):
            text(clock(line.ts, self._zone, now=self._visit.context.clock()), "k-muted k-mono")
            text(line.type, f"k-strong {f'k-text-{tone}' if tone else ''}")
            text(line.actor, "k-muted k-clip k-hide-narrow")
            with tag("span", "k-clip k-journal-data"):
                task = line.data.get("task_id")
                if isinstance(task, str) and task.startswith("task-"):
                    link(task, f"/tasks/{task}", "k-mono")
                text(_rest(line.data), "k-muted")


def _rest(data: dict[str, Any]) -> str:
    """The fields of a line but its task, in one line."""
    shown = (
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
        if name != "task_id" and value not in (None, "", [], {})
    )
    return " ".join(" ".join(shown).split())[:_LONGEST]


def _numbered(lines: Sequence[JournalLine]) -> list[tuple[str, JournalLine]]:
    """Each line with a key that stays its own when newer ones come: equal lines are counted from the oldest."""
    seen: Counter[str] = Counter()
    keyed = []
    for line in reversed(lines):
        base = line.model_dump_json()
        seen[base] += 1
        keyed.append((f"{base}#{seen[base]}", line))
    return keyed[::-1]
