"""Many lines at the price of one element: a table, a list, a log.

An element of the toolkit costs the server half a millisecond and several kilobytes; a table made of them would cost
hundreds. Here the browser makes the rows, from data, and changes only those that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from nicegui import ui

Kind: TypeAlias = Literal["table", "list", "log"]
# Tuples, since the toolkit would wrap each dict and each list to observe it.
Part: TypeAlias = tuple[str, str, str, str]
Cell: TypeAlias = tuple[str, tuple[Part, ...]]
Row: TypeAlias = tuple[str, str, tuple[Cell, ...]]


def part(text: str, classes: str = "", *, href: str = "", title: str = "") -> Part:
    """Some words of a cell; a link with ``href``."""
    return text, classes, href, title


def cell(parts: Sequence[Part] | str, classes: str = "") -> Cell:
    """One cell of a row."""
    return classes, (part(parts),) if isinstance(parts, str) else tuple(parts)


def row(key: str, cells: Sequence[Cell], classes: str = "") -> Row:
    """One row; by its key the browser knows it again."""
    return key, classes, tuple(cells)


class Lines(ui.element, component="lines.js"):
    """The rows."""

    def __init__(self, kind: Kind, label: str, classes: str, columns: Sequence[tuple[str, str, str]] = ()) -> None:
        """``columns`` are title, classes and width of each, for the head of a table."""
        super().__init__()
        self.classes(classes)
        self.props["kind"] = kind
        self.props["label"] = label
        self.props["columns"] = tuple(columns)
        self.props["rows"] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Have these, in this order."""
        shown = tuple(rows)
        if self.props["rows"] != shown:
            self.props["rows"] = shown
            self.update()
