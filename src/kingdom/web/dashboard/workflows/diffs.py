"""What changed in a file, the old side beside the new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from kingdom.web.views.patches import Hunk, Line, side_by_side

if TYPE_CHECKING:
    from kingdom.web.views.checkpoints import ChangedFile

MOST_ROWS: Final = 2000
"""Of one file: a browser that is given more gets slow, and nobody reads them."""
_LONGEST: Final = 2000  # characters of one line, as of minified code


class DiffTable(ui.element, component="diff_table.js"):
    """Rows as a table, in one element however many there are; the browser shows their words as text."""

    def __init__(self, rows: Sequence[list[Any]], label: str) -> None:
        super().__init__()
        self._props["rows"] = list(rows)
        self._props["label"] = label


def rows_of(file: ChangedFile) -> tuple[list[list[Any]], bool]:
    """The rows of a file as the table takes them, and whether there are more."""
    rows = list(islice(_rows(file.hunks), MOST_ROWS + 1))
    return rows[:MOST_ROWS], len(rows) > MOST_ROWS


def _rows(hunks: Sequence[Hunk]) -> Iterator[list[Any]]:
    for hunk in hunks:
        place = f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@ {hunk.heading}"
        yield ["hunk", None, place, None, None]
        for old, new in side_by_side(hunk):
            kind = "same" if old is not None and old.kind == " " else "changed"
            yield [kind, old and old.old_number, _shown(old), new and new.new_number, _shown(new)]


def _shown(line: Line | None) -> str | None:
    if line is None:
        return None
    words = line.text.removesuffix("\r")
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
