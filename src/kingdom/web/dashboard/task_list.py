"""The tasks: filtered, searched, page by page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from nicegui import ui

from kingdom.web.dashboard.components import (
    CellPart,
    DataTable,
    TableColumn,
    button,
    card,
    empty,
    labelled,
    part,
    row,
    tag,
    text,
)
from kingdom.web.dashboard.formats import court_timezone, format_clock, format_datetime
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.task_actions import answer_text
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.court import list_generals
from kingdom.web.views.documents import DocumentFilter, DocumentPage, TaskSummary, list_tasks

TASK_STATUSES: Final = (
    "pending",
    "in_progress",
    "needs_human",
    "answered",
    "completed",
    "failed",
    "cancelled",
    "invalid",
)
_PAGE_SIZE: Final = 50


@dataclass(frozen=True, slots=True)
class TaskListQuery:
    """Filters and page of the task list."""

    status: str | None = None
    general: str | None = None
    text: str = ""
    cursors: tuple[str, ...] = field(default=())
    """Cursors of the pages visited so far. The last one is the page shown; empty: the first page."""

    @property
    def address(self) -> str:
        """The URL with the same filters, at the first page."""
        wanted = {"status": self.status, "general": self.general, "q": self.text}
        query = urlencode({name: value for name, value in wanted.items() if value})
        return f"/tasks?{query}" if query else "/tasks"

    @property
    def filter(self) -> DocumentFilter:
        """The filters for the view."""
        return DocumentFilter(status=self.status, general=self.general, text=self.text or None)


@page("/tasks", title="nav.tasks", nav="tasks", court=True)
async def task_list_page(visit: Visit, status: str | None = None, general: str | None = None, q: str = "") -> None:
    """The task list page."""
    page_head(visit.words("nav.tasks"))
    wish = TaskListQuery(status if status in TASK_STATUSES else None, general or None, q[:200])
    listed = TaskList(visit, wish, await court_timezone(visit))
    await listed.begin()


class TaskList:
    """The task list with its filters."""

    def __init__(self, visit: Visit, wish: TaskListQuery, zone: tzinfo) -> None:
        self._visit = visit
        self._wish = wish
        self._zone = zone
        self._refresher = PageRefresher(visit)
        self._chosen: dict[str | None, ui.button] = {}
        self._next: str | None = None  # cursor of the next page

    async def begin(self) -> None:
        """Draw the list and keep it up to date."""
        words = self._visit.words
        names = [one.name for one in await list_generals(self._visit.context)]
        with row("k-wrapping k-filters"):
            self._statuses()
            self._boxes(names)
        with tag("div", "k-below"), card(words("nav.tasks"), flush=True) as (body, side):
            with side:
                self._total = text("")
            with tag("div", "k-scroll"):
                self._table: DataTable[TaskSummary] = DataTable(
                    words("nav.tasks"), lambda one: one.id, self._columns(), self._nothing, classes="k-stacked"
                )
            with row("k-pager"):
                self._newer = button(words("list.newer"), lambda: self._go(back=True))
                self._older = button(words("list.older"), lambda: self._go(back=False))
        await self._refresher.panel(body, self._load, self._show, keep=True)

    async def _load(self) -> tuple[TaskListQuery, DocumentPage[TaskSummary]]:
        wish = self._wish
        cursor = wish.cursors[-1] if wish.cursors else None
        key = ("tasks", wish)
        return wish, await self._visit.shared.read(
            key, lambda: list_tasks(self._visit.context, wish.filter, _PAGE_SIZE, cursor)
        )

    def _show(self, found: tuple[TaskListQuery, DocumentPage[TaskSummary]]) -> None:
        wish, listing = found
        self._next = listing.next_cursor
        self._table.show(listing.items)
        self._total.set_text(self._visit.words("list.total", n=f"{listing.total:,}"))
        self._newer.set_enabled(bool(wish.cursors))
        self._older.set_enabled(listing.next_cursor is not None)

    def _statuses(self) -> None:
        words = self._visit.words
        with tag("div", "k-tabs", role="group", aria_label=words("task.status")):
            for status in (None, *TASK_STATUSES):
                shown = words("list.all") if status is None else words.of("status", status)
                element = ui.button(shown, color=None, on_click=partial(self._want, status=status))
                self._chosen[status] = element.props("flat no-caps dense").classes("k-tab")
        self._mark()

    def _boxes(self, generals: list[str]) -> None:
        words = self._visit.words
        options = {"": words("task.general.any"), **{name: name for name in generals}}
        chosen = self._wish.general or ""
        select = ui.select(
            options | {chosen: options.get(chosen, chosen)},
            value=chosen,
            on_change=lambda event: self._want(general=event.value or None),
        )
        labelled(select.props("outlined dense options-dense").classes("k-field k-general"), words("task.general"))
        search = ui.input(
            placeholder=words("task.search"),
            value=self._wish.text,
            on_change=lambda event: self._want(text=(event.value or "").strip()[:200]),
        ).props('outlined dense clearable type="search" debounce="300"')
        labelled(search.classes("k-field k-search"), words("task.search"))

    def _want(self, **changed: Any) -> None:
        self._turn(replace(self._wish, cursors=(), **changed))
        self._mark()
        ui.navigate.history.replace(self._wish.address)

    def _go(self, *, back: bool) -> None:
        if back:
            self._turn(replace(self._wish, cursors=self._wish.cursors[:-1]))
        elif self._next is not None:
            self._turn(replace(self._wish, cursors=(*self._wish.cursors, self._next)))

    def _turn(self, wish: TaskListQuery) -> None:
        self._wish = wish
        self._refresher.wake()

    def _mark(self) -> None:
        for status, element in self._chosen.items():
            element.props["aria-pressed"] = "true" if status == self._wish.status else "false"

    def _nothing(self) -> None:
        words = self._visit.words
        if self._wish.address == "/tasks":
            empty(
                words("task.none"), words("task.none.hint"), "kingdom emit github.pr.review_requested --repo OWNER/NAME"
            )
        else:
            empty(words("task.none.match"), words("task.none.match.hint"))

    def _columns(self) -> list[TableColumn[TaskSummary]]:
        words = self._visit.words
        status: Callable[[TaskSummary], str] = lambda one: one.shown_status  # noqa: E731 - named for its type
        return [
            TableColumn(
                words("task.id"),
                lambda one: one.id,
                target=lambda one: f"/tasks/{one.id}",
                classes="k-mono",
                width="170px",
            ),
            TableColumn(
                words("task.status"), lambda one: words.of("status", one.shown_status), status=status, width="130px"
            ),
            TableColumn(words("task.about"), _about, classes="k-clip", below=self._question),
            TableColumn(words("task.general"), lambda one: one.target_general, classes="k-hide-narrow", width="140px"),
            TableColumn(words("task.type"), lambda one: one.type, classes="k-muted k-hide-narrow", width="230px"),
            TableColumn(words("task.created"), self._created, classes="k-num k-muted", width="140px"),
        ]

    def _question(self, task: TaskSummary) -> list[CellPart]:
        """Return what became of the question of a task, or until when it waits."""
        words, answer = self._visit.words, task.answer
        small = "k-small k-muted k-block"
        if answer is None:
            until = [] if task.deadline is None else [format_datetime(task.deadline, self._zone)]
            return [part(words("court.deadline", at=at), small) for at in until]
        said = part(answer_text(self._visit, answer, self._zone), f"{small} k-clip", title=answer.text)
        if answer.resumed_as is None:
            return [said]
        return [said, part(answer.resumed_as, "nicegui-link k-small k-above", href=f"/tasks/{answer.resumed_as}")]

    def _created(self, task: TaskSummary) -> str:
        return format_clock(task.created_at, self._zone, now=self._visit.context.clock())


def _about(task: TaskSummary) -> str:
    return " ".join(filter(None, (task.subject, task.title))) or task.event_id
