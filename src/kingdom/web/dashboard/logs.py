"""The logs page: the journal, filtered, searched, live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query
from nicegui import ui

from kingdom.court.journal_search import JournalFilter
from kingdom.journal.catalog import CATALOG, CATEGORIES
from kingdom.web.dashboard.components import button, card, empty, row, tag, text
from kingdom.web.dashboard.document_list import (
    MAX_TEXT_CHARS,
    TIME_RANGES,
    filter_select,
    range_start,
    search_field,
    time_options,
)
from kingdom.web.dashboard.formats import court_timezone
from kingdom.web.dashboard.journal_list import JournalList
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.court import court_overview
from kingdom.web.views.journal import JournalLines, search_lines

_PAGE_SIZE: Final = 100


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Filters and page of the logs."""

    type: str | None = None
    actor: str | None = None
    text: str = ""
    within: str | None = None
    cursors: tuple[str, ...] = field(default=())
    """Cursors of the pages visited so far. The last one is the page shown; empty: the newest lines."""

    @property
    def address(self) -> str:
        """The URL with the same filters, at the newest lines."""
        wanted = {"type": self.type, "actor": self.actor, "within": self.within, "q": self.text}
        query = urlencode({name: value for name, value in wanted.items() if value})
        return f"/logs?{query}" if query else "/logs"

    def filter(self, now: float) -> JournalFilter:
        """Return the filters for the view."""
        since = range_start(self.within, now)
        return JournalFilter(
            types=() if self.type is None else (self.type,),
            actors=() if self.actor is None else (self.actor,),
            text=self.text,
            since=None if since is None else since.timestamp(),
        )


@page("/logs", title="nav.logs", nav="logs", court=True)
async def log_page(
    visit: Visit,
    kind: Annotated[str | None, Query(alias="type")] = None,
    actor: str | None = None,
    within: str | None = None,
    q: str = "",
) -> None:
    """The logs page."""
    page_head(visit.words("nav.logs"))
    wish = LogQuery(kind or None, actor or None, q[:MAX_TEXT_CHARS], within if within in TIME_RANGES else None)
    roles = [one.name for one in (await court_overview(visit.context)).roles]
    await LogPanel(visit, wish, await court_timezone(visit), roles).begin()


class LogPanel:
    """The lines with their filters."""

    def __init__(self, visit: Visit, wish: LogQuery, zone: tzinfo, roles: list[str]) -> None:
        self._visit = visit
        self._wish = wish
        self._zone = zone
        self._roles = roles
        self._refresher = PageRefresher(visit)
        self._next: str | None = None

    async def begin(self) -> None:
        """Draw the lines and keep them up to date."""
        words = self._visit.words
        with row("k-wrapping k-filters"):
            categories = {f"{one}.*": f"{one}.*" for one in CATEGORIES}
            types = {"": words("events.type.any"), **categories, **{one: one for one in sorted(CATALOG)}}
            self._select("task.type", types, "type")
            actors = {"": words("logs.actor.any"), **{one: one for one in [*self._roles, "system"]}}
            self._select("logs.actor", actors, "actor")
            self._select("range.label", time_options(words), "within")
            search_field(words("logs.search"), self._wish.text, lambda value: self._want(text=value))
        with tag("div", "k-below"), card(words("nav.logs"), flush=True) as (body, side):
            with side:
                self._note = text("", "k-muted k-small")
            lines = JournalList(self._visit, body, self._zone, self._nothing, "k-logs")
            with row("k-pager"):
                self._newer = button(words("list.newer"), lambda: self._go(back=True))
                self._older = button(words("list.older"), lambda: self._go(back=False))

        def show(found: tuple[LogQuery, JournalLines]) -> None:
            wish, listing = found
            self._next = listing.next_cursor
            lines.show(listing.items)
            cut = listing.next_cursor is not None and len(listing.items) < _PAGE_SIZE
            self._note.set_text(words("logs.cut") if cut else "")
            self._newer.set_enabled(bool(wish.cursors))
            self._older.set_enabled(listing.next_cursor is not None)

        await self._refresher.panel(body, self._load, show, keep=True)

    async def _load(self) -> tuple[LogQuery, JournalLines]:
        wish, context = self._wish, self._visit.context
        cursor = wish.cursors[-1] if wish.cursors else None
        wanted = wish.filter(context.clock())
        return wish, await self._visit.shared.read(wish, lambda: search_lines(context, wanted, _PAGE_SIZE, cursor))

    def _select(self, label: str, options: Mapping[str, str], name: str) -> None:
        chosen = getattr(self._wish, name) or ""
        filter_select(self._visit.words(label), options, chosen, lambda value: self._want(**{name: value}))

    def _want(self, **changed: Any) -> None:
        self._wish = replace(self._wish, cursors=(), **changed)
        self._refresher.wake()
        ui.navigate.history.replace(self._wish.address)

    def _go(self, *, back: bool) -> None:
        if back:
            self._wish = replace(self._wish, cursors=self._wish.cursors[:-1])
        elif self._next is not None:
            self._wish = replace(self._wish, cursors=(*self._wish.cursors, self._next))
        self._refresher.wake()

    def _nothing(self) -> None:
        words = self._visit.words
        if self._wish == LogQuery():
            empty(words("court.recent.none"), words("court.recent.hint"), "kingdom up")
        else:
            empty(words("logs.none"), words("task.none.match.hint"))
