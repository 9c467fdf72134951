"""A list of documents with filters: status, time, search, and others; page by page, in the URL, live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar, cast, get_args
from urllib.parse import urlencode

from nicegui import ui

from kingdom.court.document_order import SortOrder
from kingdom.web.dashboard.components import DataTable, TableColumn, button, card, empty, labelled, row, tag, text
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.words import Translations
from kingdom.web.views.documents import DocumentFilter, DocumentPage, DocumentSummary

S = TypeVar("S", bound=DocumentSummary)
PAGE_SIZE: Final = 50
MAX_TEXT_CHARS: Final = 200
TIME_RANGES: Final = {"1h": 3600.0, "24h": 86_400.0, "7d": 7 * 86_400.0, "30d": 30 * 86_400.0, "90d": 90 * 86_400.0}
"""The time ranges that a list can be limited to, in seconds."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Filters and page of a list."""

    path: str
    status: str | None = None
    general: str | None = None
    type: str | None = None
    text: str = ""
    within: str | None = None
    """A key of :data:`TIME_RANGES`."""
    sort: SortOrder = "newest"
    cursors: tuple[str, ...] = field(default=())
    """Cursors of the pages visited so far. The last one is the page shown; empty: the first page."""

    @property
    def address(self) -> str:
        """The URL with the same filters, at the first page."""
        wanted = {
            "status": self.status,
            "general": self.general,
            "type": self.type,
            "within": self.within,
            "q": self.text,
            "sort": None if self.sort == "newest" else self.sort,
        }
        query = urlencode({name: value for name, value in wanted.items() if value})
        return f"{self.path}?{query}" if query else self.path

    def filter(self, now: float) -> DocumentFilter:
        """Return the filters for the view."""
        return DocumentFilter(
            status=self.status,
            general=self.general,
            type=self.type,
            text=self.text or None,
            since=range_start(self.within, now),
            sort=self.sort,
        )


def as_order(name: str) -> SortOrder:
    """Return the order that an address names; the newest first for an unknown one."""
    return cast(SortOrder, name) if name in get_args(SortOrder) else "newest"


def range_start(within: str | None, now: float) -> datetime | None:
    """Return the begin of a time range; None: there is none."""
    return None if within not in TIME_RANGES else datetime.fromtimestamp(now - TIME_RANGES[within], UTC)


def time_options(words: Translations) -> dict[str, str]:
    """Return the choices of a time range."""
    return {"": words("range.any"), **{name: words(f"range.{name}") for name in TIME_RANGES}}


def filter_select(label: str, options: Mapping[str, str], chosen: str, choose: Callable[[str | None], None]) -> None:
    """Draw a filter with choices; ``""`` is the choice of no filter, for which ``choose`` gets None."""
    made = ui.select(
        {**options, chosen: options.get(chosen, chosen)},
        value=chosen,
        on_change=lambda event: choose(event.value or None),
    )
    labelled(made.props("outlined dense options-dense").classes("k-field k-general"), label)


def search_field(label: str, value: str, search: Callable[[str], None]) -> None:
    """Draw a search field; ``search`` gets what is typed."""
    made = ui.input(
        placeholder=label,
        value=value,
        on_change=lambda event: search((event.value or "").strip()[:MAX_TEXT_CHARS]),
    ).props('outlined dense clearable type="search" debounce="300"')
    labelled(made.classes("k-field k-search"), label)


class DocumentList(ABC, Generic[S]):
    """A list with its filters. Subclasses say what it shows."""

    title: ClassVar[str]
    """The text key of its title."""
    search: ClassVar[str]
    """The text key of the search field."""
    statuses: ClassVar[Sequence[str]]
    orders: ClassVar[Sequence[SortOrder]]

    def __init__(self, visit: Visit, wish: ListQuery, zone: tzinfo) -> None:
        self._visit = visit
        self._wish = replace(
            wish,
            status=wish.status if wish.status in self.statuses else None,
            within=wish.within if wish.within in TIME_RANGES else None,
            text=wish.text[:MAX_TEXT_CHARS],
            sort=wish.sort if wish.sort in self.orders else "newest",
        )
        self._zone = zone
        self._refresher = PageRefresher(visit)
        self._chosen: dict[str | None, ui.button] = {}
        self._next: str | None = None  # cursor of the next page

    @abstractmethod
    async def read(self, wanted: DocumentFilter, cursor: str | None) -> DocumentPage[S]:
        """Read one page."""

    @abstractmethod
    def columns(self) -> list[TableColumn[S]]:
        """Return the columns of the table."""

    @abstractmethod
    def nothing(self) -> None:
        """Draw what is shown when there are no documents at all."""

    async def boxes(self) -> None:
        """Draw further filters, before the search field."""

    async def begin(self) -> None:
        """Draw the list and keep it up to date."""
        words = self._visit.words
        with row("k-wrapping k-filters"):
            self._statuses()
            await self.boxes()
            self.select("range.label", time_options(words), "within")
            orders: dict[str, str] = {order: words(f"sort.{order}") for order in self.orders}
            filter_select(
                words("sort.label"), orders, self._wish.sort, lambda value: self._want(sort=value or "newest")
            )
            search_field(words(self.search), self._wish.text, lambda value: self._want(text=value))
        with tag("div", "k-below"), card(words(self.title), flush=True) as (body, side):
            with side:
                self._total = text("")
            with tag("div", "k-scroll"):
                self._table: DataTable[S] = DataTable(
                    words(self.title), lambda one: one.id, self.columns(), self._empty, classes="k-stacked"
                )
            with row("k-pager"):
                self._newer = button(words("list.newer"), lambda: self._go(back=True))
                self._older = button(words("list.older"), lambda: self._go(back=False))
        await self._refresher.panel(body, self._load, self._show, keep=True)

    def select(self, label: str, options: Mapping[str, str], name: str) -> None:
        """Draw a filter with choices; ``name`` is its field of the query, ``""`` the choice of no filter."""
        chosen = getattr(self._wish, name) or ""
        filter_select(self._visit.words(label), options, chosen, lambda value: self._want(**{name: value}))

    async def _load(self) -> tuple[ListQuery, DocumentPage[S]]:
        wish = self._wish
        cursor = wish.cursors[-1] if wish.cursors else None
        wanted = wish.filter(self._visit.context.clock())
        return wish, await self._visit.shared.read(wish, lambda: self.read(wanted, cursor))

    def _show(self, found: tuple[ListQuery, DocumentPage[S]]) -> None:
        wish, listing = found
        self._next = listing.next_cursor
        self._table.show(listing.items)
        self._total.set_text(self._visit.words("list.total", n=f"{listing.total:,}"))
        self._newer.set_enabled(bool(wish.cursors))
        self._older.set_enabled(listing.next_cursor is not None)

    def _statuses(self) -> None:
        words = self._visit.words
        with tag("div", "k-tabs", role="group", aria_label=words("task.status")):
            for status in (None, *self.statuses):
                shown = words("list.all") if status is None else words.of("status", status)
                element = ui.button(shown, color=None, on_click=partial(self._want, status=status))
                self._chosen[status] = element.props("flat no-caps dense").classes("k-tab")
        self._mark()

    def _want(self, **changed: Any) -> None:
        self._turn(replace(self._wish, cursors=(), **changed))
        self._mark()
        ui.navigate.history.replace(self._wish.address)

    def _go(self, *, back: bool) -> None:
        if back:
            self._turn(replace(self._wish, cursors=self._wish.cursors[:-1]))
        elif self._next is not None:
            self._turn(replace(self._wish, cursors=(*self._wish.cursors, self._next)))

    def _turn(self, wish: ListQuery) -> None:
        self._wish = wish
        self._refresher.wake()

    def _mark(self) -> None:
        for status, element in self._chosen.items():
            element.props["aria-pressed"] = "true" if status == self._wish.status else "false"

    def _empty(self) -> None:
        words = self._visit.words
        if replace(self._wish, sort="newest").address == self._wish.path:
            self.nothing()
        else:
            empty(words("task.none.match"), words("task.none.match.hint"))
