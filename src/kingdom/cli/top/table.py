"""A table whose rows come and go while somebody has one of them chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from kingdom.cli.top.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from kingdom.cli.top.rows import Row


class LiveTable(DataTable[Text]):
    """Shows rows; the chosen one stays chosen wherever it moves to."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "select_cursor", "story")]

    def __init__(self, name: str, title: str) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=False, cell_padding=1)
        self.border_title = title
        self._headings = COLUMNS[name]
        self._shown: list[Row] = []

    def on_mount(self) -> None:
        """Set the columns up."""
        self.add_columns(*self._headings)

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor."""
        return self._shown[self.cursor_row] if 0 <= self.cursor_row < len(self._shown) else None

    def fill(self, rows: Sequence[Row]) -> None:
        """Show these rows; what has not changed is not touched."""
        before, self._shown = self._shown, list(rows)
        if [row.key for row in before] == [row.key for row in rows]:
            for number, (old, new) in enumerate(zip(before, rows, strict=True)):
                for column, (was, now) in enumerate(zip(old.cells, new.cells, strict=True)):
                    if was != now:
                        self.update_cell_at(Coordinate(number, column), now, update_width=True)
            return
        place, kept = self.cursor_row, self.scroll_offset
        chosen = before[place].key if 0 <= place < len(before) else None
        follows = self.has_focus or place > 0  # nobody chose the first row of a table without focus
        self.clear()
        for row in rows:
            self.add_row(*row.cells, key=row.key)
        if follows and chosen is not None:
            place = next((number for number, row in enumerate(rows) if row.key == chosen), min(place, len(rows) - 1))
        if rows:
            self.move_cursor(row=max(place, 0), scroll=self.has_focus)
            if not self.has_focus:
                self.scroll_to(*kept, animate=False)
