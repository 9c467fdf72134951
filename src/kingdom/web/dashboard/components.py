"""Elements that pages are built from. Text given to them is shown as text, never as markup."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from nicegui import ui

from kingdom.web.dashboard.theme import Tone, tone_of
from kingdom.web.errors import as_api_error

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit


# Small things: texts, badges, cards, figures.


E = TypeVar("E", bound="Element")


def tag(name: str, classes: str = "", **attributes: str) -> Element:
    """An HTML element: ``with tag("section", "k-card", aria_label=…):``. Attributes are data, never markup."""
    element = ui.element(name).classes(classes)
    for key, value in attributes.items():
        element.props[key.rstrip("_").replace("_", "-")] = value
    return element


def labelled(element: E, label: str) -> E:
    """Name an element for those who cannot see it (``.props("aria-label=…")`` would read the text as code)."""
    element.props["aria-label"] = label
    return element


def text(content: object, classes: str = "", name: str = "span") -> ui.label:
    """A text, in an element of this name."""
    label = ui.label(str(content)).classes(classes)
    label.tag = name
    return label


def link(content: str, target: str, classes: str = "") -> ui.link:
    """A link to a page of ours."""
    return ui.link(content, target).classes(classes)


@contextmanager
def row(classes: str = "") -> Iterator[Element]:
    """Side by side."""
    with tag("div", f"k-row {classes}") as element:
        yield element


@contextmanager
def stack(classes: str = "") -> Iterator[Element]:
    """One below the other."""
    with tag("div", f"k-stack {classes}") as element:
        yield element


@contextmanager
def card(title: str, classes: str = "", *, flush: bool = False) -> Iterator[tuple[Element, Element]]:
    """A card with a title; gives its body, in which the block builds, and the right side of its head."""
    with tag("section", f"k-card {classes}", aria_label=title):
        with tag("div", "k-card-head"):
            text(title, name="h2")
            side = tag("div", "k-card-side")
        with tag("div", f"k-card-body {'k-flush' if flush else ''}") as body:
            yield body, side


def badge(shown: str, status: str, classes: str = "") -> ui.label:
    """A status in its colour: ``badge(words.of("status", status), status)``."""
    return text(shown, f"k-badge k-tone-{tone_of(status)} {classes}")


def figure(value: str, label: str, tone: Tone | None = None) -> ui.label:
    """A number that matters, with what it counts; gives the label of the number."""
    with tag("div", "k-figure"):
        shown = text(value, f"k-figure-value {f'k-text-{tone}' if tone else ''}")
        text(label, "k-figure-label")
    return shown


def meter(part: float, label: str) -> Element:
    """How much of something is used, 0 to 1 and beyond."""
    tone = "k-meter-bad" if part >= 1 else "k-meter-warn" if part >= 0.8 else ""
    percent = round(min(max(part, 0.0), 1.0) * 100)
    bar = tag("div", f"k-meter {tone}", role="meter", aria_label=label, aria_valuemin="0", aria_valuemax="100")
    bar.props["aria-valuenow"] = str(percent)
    with bar:
        tag("div").style(f"width: {percent}%")
    return bar


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and what they stand for."""
    with tag("dl", "k-facts"):
        for name, value in pairs:
            text(name, name="dt")
            text(value, name="dd")


def code(content: str, classes: str = "k-code") -> ui.label:
    """Text as it is, in lines: output, JSON, an error."""
    element = text(content, classes, name="pre")
    element.props["tabindex"] = "0"  # what scrolls must be reachable by the keyboard
    return element


def button(
    content: str, on_click: Callable[..., Any] | None = None, *, kind: str = "", icon: str | None = None
) -> ui.button:
    """A button; ``kind`` is ``primary`` or ``danger``."""
    element = ui.button(content, on_click=on_click, icon=icon, color=None).props("flat no-caps")
    return element.classes(f"k-button {f'k-{kind}' if kind else ''}")


def tab(content: str, target: str, *, chosen: bool, count: int | None = None) -> None:
    """One of several views of the same, as a link."""
    with link("", target, "k-tab") as element:
        text(content)
        if count is not None:
            text(f"{count:,}", "k-count")
    if chosen:
        element.props["aria-current"] = "page"


# Asking before something is done, and telling what came of it.


log = logging.getLogger("kingdom.web")


async def confirm(visit: Visit, question: str, *, detail: str = "", yes: str, danger: bool = False) -> bool:
    """Ask in a dialog; True when the visitor says so, False for anything else."""
    with ui.dialog() as dialog, ui.card().classes("k-dialog"):
        dialog.props["aria-label"] = question
        text(question, name="h2")
        if detail:
            text(detail, "k-muted k-wrap", name="div")
        with tag("div", "k-dialog-actions"):
            button(visit.words("action.back"), lambda: dialog.submit(False)).props("autofocus")
            button(yes, lambda: dialog.submit(True), kind="danger" if danger else "primary")
    try:
        return await dialog is True
    finally:
        dialog.delete()


async def run_and_notify(visit: Visit, act: Callable[[], Awaitable[object]], done: str) -> bool:
    """Do something, and tell that it is done or why it is not; True when it is."""
    try:
        await act()
    except Exception as error:  # whatever it was, the visitor learns of it, and the log has the rest
        problem = as_api_error(error)
        if problem.status >= 500:
            log.exception("%s", visit.path)
        ui.notify(str(problem), type="negative", timeout=10_000, close_button=visit.words("action.close"))
        return False
    ui.notify(done, type="positive")
    return True


# What a part of a page says when it has nothing to show.


def empty(title: str, hint: str = "", command: str = "", *, page: bool = False) -> None:
    """There is nothing, why that is fine, and what to do: ``command`` is for the shell."""
    with tag("div", f"k-state {'k-state-page' if page else ''}"):
        text(title, "k-state-title", name="div")
        if hint:
            text(hint, name="div")
        if command:
            text(command, "k-mono k-command", name="code")


def failed(visit: Visit, error: Exception, *, page: bool = False) -> None:
    """Something went wrong: what, by which code, and what to do."""
    told = as_api_error(error)
    title = visit.words("error.title") if told.status >= 500 else visit.words("error.refused")
    with tag("div", f"k-state k-state-bad {'k-state-page' if page else ''}", role="alert"):
        text(title, "k-state-title", name="div")
        text(str(told), "k-wrap", name="div")
        text(told.code, "k-mono k-small", name="div")


def loading(visit: Visit) -> None:
    """It is being read."""
    with tag("div", "k-loading", role="status"):
        ui.spinner(size="18px", color=None)
        text(visit.words("state.loading"))


# Lists that change without jumping: what stays keeps its elements, with the focus and the text somebody types.


T = TypeVar("T")


class KeyedList(Generic[T]):
    """Keeps the children of an element in step with a list.

    ``make(item)`` builds exactly one element and gives what it wants called with each later version of the item.
    ``none()`` builds one element that is shown while the list is empty.
    """

    def __init__(
        self,
        inside: Element,
        key: Callable[[T], Hashable],
        make: Callable[[T], Callable[[T], None] | None],
        none: Callable[[], None] | None = None,
    ) -> None:
        self._inside = inside
        self._key = key
        self._make = make
        self._none = none
        self._nothing: Element | None = None
        self._there: dict[Hashable, tuple[Element, Callable[[T], None] | None, T]] = {}

    def show(self, items: Iterable[T]) -> None:
        """Have these, in this order."""
        wanted = {self._key(item): item for item in items}
        self._show_nothing(not wanted)
        for key in [key for key in self._there if key not in wanted]:
            self._there.pop(key)[0].delete()
        for index, (key, item) in enumerate(wanted.items()):
            if key not in self._there:
                self._there[key] = self._made(item)
            element, update, before = self._there[key]
            if before != item and update is not None:
                update(item)
            elif before != item:
                element.delete()
                element, update, _ = self._made(item)
            self._there[key] = element, update, item
            if self._inside.default_slot.children[index] is not element:
                element.move(self._inside, index)

    def _made(self, item: T) -> tuple[Element, Callable[[T], None] | None, T]:
        children = self._inside.default_slot.children
        with self._inside:
            update = self._make(item)
        return children[-1], update, item

    def _show_nothing(self, empty: bool) -> None:
        if not empty and self._nothing is not None:
            self._nothing.delete()
            self._nothing = None
        elif empty and self._nothing is None and self._none is not None:
            with self._inside:
                self._none()
            self._nothing = self._inside.default_slot.children[-1]


# Many lines at the price of one element: a table, a list, a log.
#
# An element of the toolkit costs the server half a millisecond and several kilobytes; a table made of them would cost
# hundreds. Here the browser makes the rows, from data, and changes only those that changed.


RowListKind: TypeAlias = Literal["table", "list", "log"]
# Tuples, since the toolkit would wrap each dict and each list to observe it.
CellPart: TypeAlias = tuple[str, str, str, str]
RowCell: TypeAlias = tuple[str, tuple[CellPart, ...]]
ListRow: TypeAlias = tuple[str, str, tuple[RowCell, ...]]


def part(text: str, classes: str = "", *, href: str = "", title: str = "") -> CellPart:
    """Some words of a cell; a link with ``href``."""
    return text, classes, href, title


def cell(parts: Sequence[CellPart] | str, classes: str = "") -> RowCell:
    """One cell of a row."""
    return classes, (part(parts),) if isinstance(parts, str) else tuple(parts)


def list_row(key: str, cells: Sequence[RowCell], classes: str = "") -> ListRow:
    """One row; by its key the browser knows it again."""
    return key, classes, tuple(cells)


class RowList(ui.element, component="lines.js"):
    """The rows."""

    def __init__(
        self, kind: RowListKind, label: str, classes: str, columns: Sequence[tuple[str, str, str]] = ()
    ) -> None:
        """``columns`` are title, classes and width of each, for the head of a table."""
        super().__init__()
        self.classes(classes)
        self.props["kind"] = kind
        self.props["label"] = label
        self.props["columns"] = tuple(columns)
        self.props["rows"] = ()

    def show(self, rows: Sequence[ListRow]) -> None:
        """Have these, in this order."""
        shown = tuple(rows)
        if self.props["rows"] != shown:
            self.props["rows"] = shown
            self.update()


# Tables whose rows are links and change in place.


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[T]):
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


class DataTable(Generic[T]):
    """A table of items. ``show`` changes it in place; ``none`` draws what stands below while it is empty."""

    def __init__(
        self,
        label: str,
        key: Callable[[T], Hashable],
        columns: Sequence[TableColumn[T]],
        none: Callable[[], None] | None = None,
        *,
        classes: str = "",
    ) -> None:
        """``classes`` may be ``k-stacked``: on a phone each row becomes two lines of two cells."""
        self._key = key
        self._columns = columns
        self._none = none
        heads = [(one.title, _head_classes(one), one.width) for one in columns]
        self._lines = RowList("table", label, f"k-table {classes}", heads)
        self._below = tag("div")

    def show(self, items: Iterable[T]) -> None:
        """Have these rows, in this order."""
        rows = [
            list_row(str(self._key(item)), [_column_cell(column, item) for column in self._columns]) for item in items
        ]
        self._lines.show(rows)
        self._below.clear()
        if not rows and self._none is not None:
            with self._below:
                self._none()


def _head_classes(column: TableColumn[T]) -> str:
    return " ".join(one for one in column.classes.split() if one in ("k-num", "k-hide-narrow"))


def _column_cell(column: TableColumn[T], item: T) -> RowCell:
    shown = column.value(item)
    if column.target is not None:
        return cell([part(shown, "nicegui-link k-row-link", href=column.target(item))], column.classes)
    if column.status is not None:
        return cell([part(shown, f"k-badge k-tone-{tone_of(column.status(item))}")], column.classes)
    return cell(shown, column.classes)
