"""The list of workflows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final, get_args

from nicegui import ui

from kingdom.web.dashboard.components import KeyedList, badge, button, card, empty, labelled, link, tab, tag, text
from kingdom.web.dashboard.document_list import TIME_RANGES, filter_select, time_options
from kingdom.web.dashboard.formats import court_timezone, format_minute, format_usd, page_url
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.widgets import search_box, update_badge, update_progress, workflow_status
from kingdom.web.envelope import Page
from kingdom.web.views.workflow_order import WorkflowOrder
from kingdom.web.views.workflows import WorkflowSummary, list_workflows

_PAGE_SIZE: Final = 25
_ORDERS: Final[tuple[WorkflowOrder, ...]] = get_args(WorkflowOrder)
# The columns, and the order that each can be in. `created` turns around.
_COLUMNS: Final[tuple[tuple[str, str, WorkflowOrder], ...]] = (
    ("name", "", "name"),
    ("status", "", "status"),
    ("progress", "", "progress"),
    ("issue", "k-hide-narrow", "issue"),
    ("created", "k-hide-narrow", "newest"),
    ("cost", "k-num", "cost"),
)
_SORTED_UPWARDS: Final = frozenset({"name", "status", "issue", "oldest"})
_STATUS_FILTERS: Final[dict[str, tuple[str, ...]]] = {
    "all": (),
    "active": ("PREPARING", "RUNNING", "RESUMING"),
    "waiting": ("CREATED", "READY", "PAUSED"),
    "failed": ("FAILED",),
    "over": ("COMPLETED", "CANCELLED"),
}


@dataclass(frozen=True, slots=True)
class WorkflowListQuery:
    """Filters and order of the list, as in its address."""

    show: str = "all"
    search: str = ""
    within: str = ""
    sort: WorkflowOrder = "newest"

    def address(self, cursor: str | None = None, **changed: str | None) -> str:
        """Return the URL with other filters, or of another page."""
        wanted: dict[str, str | None] = {
            "show": self.show, "search": self.search, "within": self.within, "sort": self.sort, **changed
        }  # fmt: skip
        defaults = {"show": "all", "sort": "newest"}
        kept = {name: value for name, value in wanted.items() if value != defaults.get(name)}
        return page_url("workflows", **kept, cursor=cursor)


@page("/workflows", title="nav.workflows", nav="workflows")
async def workflow_list_page(
    visit: Visit, show: str = "all", search: str = "", within: str = "", sort: str = "newest", cursor: str = ""
) -> None:
    """The workflow list page."""
    words, zone = visit.words, await court_timezone(visit)
    wish = WorkflowListQuery(
        show if show in _STATUS_FILTERS else "all",
        search.strip(),
        within if within in TIME_RANGES else "",
        sort if sort in _ORDERS else "newest",
    )
    with page_head(words("nav.workflows")):
        link(words("sources.title"), "/repositories", "k-quiet-link")
        if visit.may("createWorkflow"):
            button(words("workflow.new"), lambda: ui.navigate.to("/workflows/new"), kind="primary", icon="add")
    _draw_filters(visit, wish)
    with card(words("nav.workflows"), flush=True) as (body, _):
        pass
    pages = tag("nav", "k-row k-pages", aria_label=words("pages.label"))
    rows: list[_WorkflowTable] = []

    async def load() -> Page[WorkflowSummary]:
        seconds = TIME_RANGES.get(wish.within)
        return await list_workflows(
            visit.context,
            statuses=_STATUS_FILTERS[wish.show],
            search=wish.search or None,
            since=None if seconds is None else visit.context.clock() - seconds,
            sort=wish.sort,
            limit=_PAGE_SIZE,
            cursor=cursor or None,
        )

    def draw(found: Page[WorkflowSummary]) -> None:
        if not found.items:
            rows.clear()
            body.clear()
            _nothing(visit, filtered=bool(cursor or wish != WorkflowListQuery()))
        else:
            if not rows or rows[0].table.is_deleted:
                body.clear()
                rows[:] = [_WorkflowTable(visit, zone, wish)]
            rows[0].show(found.items)
        pages.clear()
        with pages:
            if cursor:
                link(words("pages.first"), wish.address())
            if found.next_cursor:
                link(words("pages.next"), wish.address(found.next_cursor))

    await PageRefresher(visit, lambda event: event.source == "workflow").panel(body, load, draw, keep=True)


def _draw_filters(visit: Visit, wish: WorkflowListQuery) -> None:
    """Draw the status tabs, the time range, the order and the search field."""
    words = visit.words

    with tag("div", "k-row k-wrapping k-filters"):
        with tag("nav", "k-tabs", aria_label=words("workflow.filter")):
            for name in _STATUS_FILTERS:
                tab(words(f"workflow.show.{name}"), wish.address(show=name), chosen=name == wish.show)
        filter_select(
            words("range.label"),
            time_options(words),
            wish.within,
            lambda value: ui.navigate.to(wish.address(within=value)),
        )
        filter_select(
            words("sort.label"),
            {order: words(f"sort.{order}") for order in _ORDERS},
            wish.sort,
            lambda value: ui.navigate.to(wish.address(sort=value)),
        )
        search_box(words("workflow.search"), wish.search, lambda text: wish.address(search=text))


def _nothing(visit: Visit, *, filtered: bool) -> None:
    words = visit.words
    if filtered:
        empty(words("workflow.none.here"), words("workflow.none.here.hint"))
        link(words("workflow.show.all"), "/workflows", "k-state-link")
        return
    empty(words("workflow.none"), words("workflow.none.hint"))
    with tag("div", "k-row k-state-actions"):
        button(words("template.new"), lambda: ui.navigate.to("/templates/new"), kind="primary")
        button(words("workflow.new"), lambda: ui.navigate.to("/workflows/new"))


def _draw_heading(visit: Visit, wish: WorkflowListQuery, name: str, classes: str, order: WorkflowOrder) -> None:
    """Draw the heading of a column: a link that sorts the list by it."""
    words = visit.words
    by_time = order == "newest"
    chosen = wish.sort == order or (by_time and wish.sort == "oldest")
    if by_time and wish.sort == "newest":
        order = "oldest"
    with tag("th", classes, scope="col") as heading:
        with link("", wish.address(sort=order), "k-sort") as made:
            text(words(f"workflow.column.{name}"))
            if chosen:
                upwards = wish.sort in _SORTED_UPWARDS
                text("▲" if upwards else "▼", "k-sort-mark").props["aria-hidden"] = "true"
                heading.props["aria-sort"] = "ascending" if upwards else "descending"
        made.props["title"] = words(f"sort.{order}")


class _WorkflowTable:
    """The table of workflows, updated in place."""

    def __init__(self, visit: Visit, zone: tzinfo, wish: WorkflowListQuery) -> None:
        self._words = words = visit.words
        self._zone = zone
        self.table = tag("table", "k-table k-workflows", aria_label=words("nav.workflows"))
        with self.table:
            with tag("thead"), tag("tr"):
                for name, classes, order in _COLUMNS:
                    _draw_heading(visit, wish, name, classes, order)
            self._rows: KeyedList[WorkflowSummary] = KeyedList(tag("tbody"), lambda item: item.id, self._row)

    def show(self, items: list[WorkflowSummary]) -> None:
        self._rows.show(items)

    def _row(self, item: WorkflowSummary) -> Callable[[WorkflowSummary], None]:
        with tag("tr"):
            with tag("td", "k-cell-name"):
                link(item.name, page_url("workflows", item.id), "k-row-link")
                about = text("", "k-muted k-small k-clip", name="div")
            with tag("td"):
                status = badge("", "")
            with tag("td", "k-cell-progress"):
                bar = tag("div", "k-progress", role="progressbar", aria_valuemin="0")
                labelled(bar, self._words("workflow.column.progress"))
                with bar:
                    fill = tag("div")
                count = text("", "k-small k-muted")
            text(item.issue_key or "", "k-hide-narrow k-mono", name="td")
            text(format_minute(item.created_at, self._zone), "k-hide-narrow k-muted", name="td")
            cost = text("", "k-num", name="td")

        def update(new: WorkflowSummary) -> None:
            shown = workflow_status(new.status, asking=new.asking)
            update_badge(status, self._words.of("workflow.status", shown), shown)
            about.set_text(new.reason or ", ".join(new.running))
            count.set_text(f"{new.works_completed}/{new.works_total}")
            update_progress(bar, fill, new.works_completed, new.works_total, bad=bool(new.works_failed))
            cost.set_text(format_usd(new.cost_usd))

        update(item)
        return update
