"""Tables whose rows are links and change in place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kingdom.web.dashboard.building.elements import badge, link, tag, text
from kingdom.web.dashboard.building.keyed import Keyed

if TYPE_CHECKING:
    from nicegui.element import Element

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
    """A table of items. ``show`` changes it in place."""

    def __init__(
        self,
        label: str,
        key: Callable[[T], Hashable],
        columns: Sequence[Column[T]],
        none: Callable[[], None] | None = None,
    ) -> None:
        self._columns = columns
        with tag("table", "k-table", aria_label=label):
            with tag("thead"), tag("tr"):
                for column in columns:
                    head = text(column.title, _head_classes(column), name="th")
                    head.props["scope"] = "col"
                    if column.width:
                        head.style(f"width: {column.width}")
            self._rows: Keyed[T] = Keyed(tag("tbody"), key, self._row, none and (lambda: self._alone(none)))

    def show(self, items: Iterable[T]) -> None:
        """Have these rows, in this order."""
        self._rows.show(items)

    def _alone(self, none: Callable[[], None]) -> None:
        with tag("tr"), tag("td", "k-alone", colspan=str(len(self._columns))):
            none()

    def _row(self, item: T) -> Callable[[T], None]:
        with tag("tr"):
            updates = [_cell(column, item) for column in self._columns]

        def update(new: T) -> None:
            for one in updates:
                one(new)

        return update


def _head_classes(column: Column[T]) -> str:
    return " ".join(one for one in column.classes.split() if one in ("k-num", "k-hide-narrow"))


def _cell(column: Column[T], item: T) -> Callable[[T], None]:
    if column.status is None and column.target is None:
        cell = text(column.value(item), column.classes, name="td")

        def retext(new: T) -> None:
            cell.set_text(column.value(new))

        return retext
    with tag("td", column.classes) as holder:
        _content(column, item)
    shown = (column.value(item), column.status(item) if column.status else "")

    def update(new: T) -> None:
        nonlocal shown
        now = (column.value(new), column.status(new) if column.status else "")
        if now != shown:
            shown = now
            _redrawn(holder, column, new)

    return update


def _redrawn(holder: Element, column: Column[T], item: T) -> None:
    holder.clear()
    with holder:
        _content(column, item)


def _content(column: Column[T], item: T) -> None:
    if column.target is not None:
        link(column.value(item), column.target(item), "k-row-link")
    elif column.status is not None:
        badge(column.value(item), column.status(item))
