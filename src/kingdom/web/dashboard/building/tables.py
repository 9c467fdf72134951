"""Tables whose rows are links and change in place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kingdom.web.dashboard.building.elements import tag
from kingdom.web.dashboard.building.lines import Cell, Lines, cell, part, row
from kingdom.web.dashboard.theme import tone_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: its title, and what it says of an item."""

    title: str
    value: Callable[[T], str]
    status: Callable[[T], str] | None = None
    """Shown as a badge in the colour of this status."""
    target: Callable[[T], str] | None = None
    """Where the whole row leads to: for one column, the first."""
    classes: str = ""
    """``k-num``, ``k-clip``, ``k-mono``, ``k-muted``, ``k-hide-narrow``."""
    width: str = ""


class Table(Generic[T]):
    """A table of items. ``show`` changes it in place; ``none`` draws what stands below while it is empty."""

    def __init__(
        self,
        label: str,
        key: Callable[[T], Hashable],
        columns: Sequence[Column[T]],
        none: Callable[[], None] | None = None,
        *,
        classes: str = "",
    ) -> None:
        """``classes`` may be ``k-stacked``: on a phone each row becomes two lines of two cells."""
        self._key = key
        self._columns = columns
        self._none = none
        heads = [(one.title, _head_classes(one), one.width) for one in columns]
        self._lines = Lines("table", label, f"k-table {classes}", heads)
        self._below = tag("div")

    def show(self, items: Iterable[T]) -> None:
        """Have these rows, in this order."""
        rows = [row(str(self._key(item)), [_cell(column, item) for column in self._columns]) for item in items]
        self._lines.show(rows)
        self._below.clear()
        if not rows and self._none is not None:
            with self._below:
                self._none()


def _head_classes(column: Column[T]) -> str:
    return " ".join(one for one in column.classes.split() if one in ("k-num", "k-hide-narrow"))


def _cell(column: Column[T], item: T) -> Cell:
    shown = column.value(item)
    if column.target is not None:
        return cell([part(shown, "nicegui-link k-row-link", href=column.target(item))], column.classes)
    if column.status is not None:
        return cell([part(shown, f"k-badge k-tone-{tone_of(column.status(item))}")], column.classes)
    return cell(shown, column.classes)
