"""The tasks: filtered, searched, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kingdom.web.dashboard.components import CellPart, TableColumn, empty, part
from kingdom.web.dashboard.document_list import PAGE_SIZE, DocumentList, ListQuery, as_order
from kingdom.web.dashboard.formats import court_timezone, format_clock, format_datetime
from kingdom.web.dashboard.shell import draw_emit_link, page, page_head
from kingdom.web.dashboard.task_actions import answer_text
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.documents import DocumentFilter, DocumentPage, TaskSummary, list_tasks
from kingdom.web.views.generals import list_generals

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


@page("/tasks", title="nav.tasks", nav="tasks", court=True)
async def task_list_page(
    visit: Visit,
    status: str | None = None,
    general: str | None = None,
    within: str | None = None,
    q: str = "",
    sort: str = "newest",
) -> None:
    """The task list page."""
    page_head(visit.words("nav.tasks"))
    wish = ListQuery("/tasks", status=status, general=general or None, within=within, text=q, sort=as_order(sort))
    await TaskList(visit, wish, await court_timezone(visit)).begin()


class TaskList(DocumentList[TaskSummary]):
    """The task list with its filters."""

    title = "nav.tasks"
    search = "task.search"
    statuses = TASK_STATUSES
    orders = ("newest", "oldest", "status", "type", "general", "priority")

    async def read(self, wanted: DocumentFilter, cursor: str | None) -> DocumentPage[TaskSummary]:
        """Read one page."""
        return await list_tasks(self._visit.context, wanted, PAGE_SIZE, cursor)

    async def boxes(self) -> None:
        """Draw the choice of a general."""
        names = [one.name for one in await list_generals(self._visit.context)]
        options = {"": self._visit.words("task.general.any"), **{name: name for name in names}}
        self.select("task.general", options, "general")

    def nothing(self) -> None:
        """Say how the first task comes."""
        words = self._visit.words
        empty(words("task.none"), words("task.none.hint"))
        draw_emit_link(self._visit)

    def columns(self) -> list[TableColumn[TaskSummary]]:
        """Return the columns of the table."""
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
            TableColumn(words("task.about"), about_summary, classes="k-clip", below=self._question),
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


def about_summary(task: TaskSummary) -> str:
    """Return what a task in a list is about."""
    return " ".join(filter(None, (task.subject, task.title))) or task.event_id
