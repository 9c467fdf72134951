"""Elements that pages are built from. Text given to them is shown as text, never as markup."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from nicegui import ui

from kingdom.web.dashboard.theme import Tone, tone_of
from kingdom.web.errors import as_api_error

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit


# ── Basic elements ──


E = TypeVar("E", bound="Element")
_BROWSER_SECONDS: Final = 5.0  # for the browser to answer


def tag(name: str, classes: str = "", **attributes: str) -> Element:
    """Create an HTML element: ``with tag("section", "k-card", aria_label=…):``.

    Attributes are set as data, not parsed.
    """
    element = ui.element(name).classes(classes)
    for key, value in attributes.items():
        element.props[key.rstrip("_").replace("_", "-")] = value
    return element


def labelled(element: E, label: str) -> E:
    """Set the accessible name of an element. (``.props("aria-label=…")`` would parse the text.)"""
    element.props["aria-label"] = label
    return element


def with_draft(element: E, name: str) -> E:
    """Keep what is typed into a field in the browser, under this name, until :func:`forget_draft` (``drafts.js``)."""
    if name:
        element.props["data-draft"] = name
    return element


async def forget_draft(name: str) -> None:
    """Remove a draft, and those below it, from the browser: the text has arrived.

    Waits for the browser, which would otherwise ask before it leaves the page.
    """
    with suppress(TimeoutError):  # the page is gone
        await ui.run_javascript(f"kingdomDrafts.forget({json.dumps(name)})", timeout=_BROWSER_SECONDS)


def text(content: object, classes: str = "", name: str = "span") -> ui.label:
    """Create an element that contains text."""
    label = ui.label(str(content)).classes(classes)
    label.tag = name
    return label


def link(content: str, target: str, classes: str = "") -> ui.link:
    """Create a link to a page of the dashboard."""
    return ui.link(content, target).classes(classes)


_LINK_SCHEMES: Final = ("http", "https", "mailto")


def web_element(url: str) -> Element:
    """Create a link to another site if the URL is a web address, else a plain element."""
    try:
        leads_to_web = urlsplit(url).scheme.lower() in _LINK_SCHEMES
    except ValueError:  # http://[nothing]/
        leads_to_web = False
    if not leads_to_web:
        return tag("span")
    return tag("a", href=url, target="_blank", rel="noopener noreferrer nofollow")


def web_link(url: str) -> None:
    """Show a URL from outside; a web address is a link."""
    with web_element(url):
        text(url, "k-wrap")


@contextmanager
def row(classes: str = "") -> Iterator[Element]:
    """Lay out the elements of the block in a row."""
    with tag("div", f"k-row {classes}") as element:
        yield element


@contextmanager
def stack(classes: str = "") -> Iterator[Element]:
    """Lay out the elements of the block in a column."""
    with tag("div", f"k-stack {classes}") as element:
        yield element


@contextmanager
def card(title: str, classes: str = "", *, flush: bool = False, anchor: str = "") -> Iterator[tuple[Element, Element]]:
    """Create a card with a title. Yields its body, in which the block builds, and the right side of its header.

    ``anchor`` is the name by which links lead to it.
    """
    with tag("section", f"k-card {classes}", aria_label=title, **({"id": anchor} if anchor else {})):
        with tag("div", "k-card-head"):
            text(title, name="h2")
            side = tag("div", "k-card-side")
        with tag("div", f"k-card-body {'k-flush' if flush else ''}") as body:
            yield body, side


def badge(shown: str, status: str, classes: str = "") -> ui.label:
    """Show a status in its colour: ``badge(words.of("status", status), status)``."""
    return text(shown, f"k-badge k-tone-{tone_of(status)} {classes}")


def figure(value: str, label: str, tone: Tone | None = None) -> ui.label:
    """Show a number with a caption. Returns the label of the number."""
    with tag("div", "k-figure"):
        shown = text(value, f"k-figure-value {f'k-text-{tone}' if tone else ''}")
        text(label, "k-figure-label")
    return shown


def meter(part: float, label: str) -> Element:
    """Show a usage bar; ``part`` is the used fraction and may exceed 1."""
    tone = "k-meter-bad" if part >= 1 else "k-meter-warn" if part >= 0.8 else ""
    percent = round(min(max(part, 0.0), 1.0) * 100)
    bar = tag("div", f"k-meter {tone}", role="meter", aria_label=label, aria_valuemin="0", aria_valuemax="100")
    bar.props["aria-valuenow"] = str(percent)
    with bar:
        tag("div").style(f"width: {percent}%")
    return bar


def usage(name: str, shown: str, part: float) -> None:
    """Show a limit: its name, the used and allowed amount, and a bar."""
    with tag("div", "k-stack k-tight"):
        with row("k-spread k-small"):
            text(name)
            text(shown, "k-muted")
        meter(part, name)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Show names and values as a description list."""
    with tag("dl", "k-facts"):
        for name, value in pairs:
            text(name, name="dt")
            text(value, name="dd")


def code(content: str, classes: str = "k-code") -> ui.label:
    """Show preformatted text, such as output, JSON or an error."""
    element = text(content, classes, name="pre")
    element.props["tabindex"] = "0"  # scrollable elements must be reachable by keyboard
    return element


def folded_json(title: str, document: object) -> None:
    """Show a raw document, folded."""
    with tag("details", "k-details"):
        text(title, "k-small k-muted", name="summary")
        code(json.dumps(document, ensure_ascii=False, indent=2))


def button(
    content: str, on_click: Callable[..., Any] | None = None, *, kind: str = "", icon: str | None = None
) -> ui.button:
    """Create a button; ``kind`` is ``primary``, ``danger`` or empty."""
    element = ui.button(content, on_click=on_click, icon=icon, color=None).props("flat no-caps")
    return element.classes(f"k-button {f'k-{kind}' if kind else ''}")


def tab(content: str, target: str, *, chosen: bool, count: int | None = None) -> None:
    """Create a tab that is a link, optionally with a count."""
    with link("", target, "k-tab") as element:
        text(content)
        if count is not None:
            text(f"{count:,}", "k-count")
    if chosen:
        element.props["aria-current"] = "page"


# ── Dialogs and notifications ──


log = logging.getLogger("kingdom.web")


async def confirm(visit: Visit, question: str, *, detail: str = "", yes: str, danger: bool = False) -> bool:
    """Ask for confirmation in a dialog. Returns True only if the visitor confirms."""
    with dialog_box(question) as dialog:
        if detail:
            text(detail, "k-muted k-wrap", name="div")
        with tag("div", "k-dialog-actions"):
            button(visit.words("action.back"), lambda: dialog.submit(False)).props("autofocus")
            button(yes, lambda: dialog.submit(True), kind="danger" if danger else "primary")
    return await dialog is True


@contextmanager
def dialog_box(question: str) -> Iterator[ui.dialog]:
    """Create a dialog with a title, to be awaited. It is removed when it has closed and given the focus back.

    It belongs to the page and not to the panel of the button: the panel may be drawn again while somebody reads.
    """
    panel = ui.context.slot.parent
    if (handler := asyncio.current_task()) is not None:
        handler.add_done_callback(lambda _: panel)  # what follows the dialog needs its panel, drawn again or not
    with ui.context.client, ui.dialog() as dialog, ui.card().classes("k-dialog"):
        dialog.props["aria-label"] = question
        dialog.on("hide", dialog.delete)
        text(question, name="h2")
        yield dialog


async def run_and_notify(
    visit: Visit, act: Callable[[], Awaitable[object]], done: str, operation: str, subject: str = "", **of: str
) -> bool:
    """Run an action as the visitor (:meth:`Visit.acts`) and tell them the result. Returns whether it succeeded."""
    try:
        async with visit.acts(operation, subject, **of):
            await act()
    except Exception as error:  # show every error to the visitor; log unexpected ones
        problem = as_api_error(error)
        if problem.status >= 500:
            log.exception("%s", visit.path)
        ui.notify(str(problem), type="negative", timeout=10_000, close_button=visit.words("action.close"))
        return False
    ui.notify(done, type="positive")
    return True


# ── Empty, error and loading states ──


def empty(title: str, hint: str = "", command: str = "", *, page: bool = False) -> None:
    """Show an empty state: a title, a hint, and a shell command that helps."""
    with tag("div", f"k-state {'k-state-page' if page else ''}"):
        text(title, "k-state-title", name="div")
        if hint:
            text(hint, name="div")
        if command:
            text(command, "k-mono k-command", name="code")


def failed(visit: Visit, error: Exception, *, page: bool = False) -> None:
    """Show an error with its message and code."""
    problem = as_api_error(error)
    title = visit.words("error.title") if problem.status >= 500 else visit.words("error.refused")
    with tag("div", f"k-state k-state-bad {'k-state-page' if page else ''}", role="alert"):
        text(title, "k-state-title", name="div")
        text(str(problem), "k-wrap", name="div")
        text(problem.code, "k-mono k-small", name="div")


def loading(visit: Visit) -> None:
    """Show a loading indicator."""
    with tag("div", "k-loading", role="status"):
        ui.spinner(size="18px", color=None)
        text(visit.words("state.loading"))


# ── Lists ──


T = TypeVar("T")


class KeyedList(Generic[T]):
    """Keeps the children of an element in sync with a list.

    Elements of unchanged items are kept, with their focus and typed text. ``make(item)`` builds exactly one element and
    returns a function that updates it, or None to rebuild it when the item changes. ``none()`` builds one element that
    is shown while the list is empty.
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
        """Show these, in this order."""
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


RowListKind: TypeAlias = Literal["table", "list", "log"]
ColumnHeads: TypeAlias = Sequence[tuple[str, str, str]]  # the title, classes and width of each column of a table
# Tuples, because NiceGUI would wrap every dict and list in an observable.
CellPart: TypeAlias = tuple[str, str, str, str]
RowCell: TypeAlias = tuple[str, tuple[CellPart, ...]]
ListRow: TypeAlias = tuple[str, str, tuple[RowCell, ...]]


def part(text: str, classes: str = "", *, href: str = "", title: str = "") -> CellPart:
    """Create a piece of text in a cell; with ``href`` it is a link."""
    return text, classes, href, title


def cell(parts: Sequence[CellPart] | str, classes: str = "") -> RowCell:
    return classes, (part(parts),) if isinstance(parts, str) else tuple(parts)


def list_row(key: str, cells: Sequence[RowCell], classes: str = "") -> ListRow:
    """Create a row. Its key identifies it across updates."""
    return key, classes, tuple(cells)


class RowList(ui.element, component="lines.js"):
    """A table, list or log that is one NiceGUI element.

    A NiceGUI element costs the server half a millisecond and several kilobytes, so a table of elements would cost
    hundreds of them. Here the browser renders the rows from data and updates only those that changed.
    """

    def __init__(
        self, kind: RowListKind, label: str, classes: str, columns: ColumnHeads = (), *, steady: bool = False
    ) -> None:
        """The rows of a ``steady`` list do not move when lines come: they change their words."""
        super().__init__()
        self.classes(classes)
        self.props.update(kind=kind, label=label, columns=tuple(columns), steady=steady, rows=())

    def show(self, rows: Sequence[ListRow]) -> None:
        """Show these, in this order."""
        shown = tuple(rows)
        if self.props["rows"] != shown:
            self.props["rows"] = shown
            self.update()


# ── Tables ──


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[T]):
    """A column of a table: its title and how it shows an item."""

    title: str
    value: Callable[[T], str]
    status: Callable[[T], str] | None = None
    """If set, the value is a badge in the colour of this status."""
    target: Callable[[T], str] | None = None
    """The link target of the whole row. Set it on the first column only."""
    below: Callable[[T], Sequence[CellPart]] | None = None
    """More text, and links, below the value."""
    classes: str = ""
    """``k-num``, ``k-clip``, ``k-mono``, ``k-muted``, ``k-hide-narrow``."""
    width: str = ""


class DataTable(Generic[T]):
    """A table of items, updated in place by ``show``. ``none`` draws the empty state below it."""

    def __init__(
        self,
        label: str,
        key: Callable[[T], Hashable],
        columns: Sequence[TableColumn[T]],
        none: Callable[[], None] | None = None,
        *,
        classes: str = "",
    ) -> None:
        """With the class ``k-stacked``, a row becomes two lines of two cells on a phone."""
        self._key = key
        self._columns = columns
        self._none = none
        heads = [(one.title, _head_classes(one), one.width) for one in columns]
        self._lines = RowList("table", label, f"k-table {classes}", heads)
        self._below = tag("div")

    def show(self, items: Iterable[T]) -> None:
        """Show these items, in this order."""
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
    return cell([part(shown), *(column.below(item) if column.below is not None else ())], column.classes)
