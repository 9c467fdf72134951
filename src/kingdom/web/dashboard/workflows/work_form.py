"""The form of one Work, with its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from nicegui import ui

from kingdom.web.dashboard.building import button, labelled, tag, text
from kingdom.web.dashboard.workflows.drafts import TaskDraft, WorkDraft
from kingdom.web.dashboard.workflows.fields import area, choice, count, line, several, switch

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.dashboard.workflows.plan_form import PlanForm

T = TypeVar("T")
_MOST_RETRIES: Final = 100


class WorkForm:
    """On a page; made where it is to stand."""

    def __init__(self, visit: Visit, plan: PlanForm, number: int, work: WorkDraft) -> None:
        self._words = visit.words
        self._plan = plan
        self._number = number
        self._work = work
        self._after: ui.select | None = None
        title = self._words("plan.work", number=number + 1)
        with tag("section", "k-card k-form", aria_label=title):
            if work.locked:  # there is nothing to be done here: it can be read
                with tag("details", "k-done"):
                    with tag("summary"):
                        text(f"{title}: {work.name} ", "k-strong")
                        text(self._words("plan.locked"), "k-muted k-small")
                    self._body()
                return
            with tag("header", "k-card-head"):
                text(title, name="h2")
                with tag("div", "k-card-side"):
                    self._buttons()
            self._body()

    def _body(self) -> None:
        with tag("div", "k-pad k-column"):
            self._fields()
            self._tasks = tag("ol", "k-column")
            self._draw_tasks()
            if not self._work.locked:
                button(self._words("plan.task.add"), self._add_task, icon="add")

    def _buttons(self) -> None:
        words, plan, number = self._words, self._plan, self._number
        for icon, label, by in (("arrow_upward", "plan.up", -1), ("arrow_downward", "plan.down", 1)):
            small(icon, words(label), lambda by=by: plan.move(number, by)).set_enabled(plan.movable(number, by))
        removing = small("delete", words("plan.work.remove"), lambda: plan.remove(number))
        removing.set_enabled(not self._work.begun and len(plan.draft.works) > 1)

    def _fields(self) -> None:
        words, work, locked = self._words, self._work, self._work.locked
        engines = sorted({*self._plan.choices.engines, work.engine})
        with tag("div", "k-row k-wrapping k-fields"):
            name = line(words("plan.name"), work, "name", locked=locked or work.begun)
            before = work.name

            def rename() -> None:
                nonlocal before
                if work.name != before:
                    self._plan.renamed(before, work.name)
                    before = work.name

            name.on("blur", rename)
            choice(words("plan.engine"), engines, work, "engine", locked=locked)
            line(words("plan.model"), work, "model", locked=locked)
        with tag("div", "k-row k-wrapping k-fields"):
            if len(self._plan.draft.works) > 1:
                others, hint = self._plan.others(work), words("plan.after.hint")
                self._after = several(words("plan.after"), others, work, "after", hint=hint, locked=work.begun)
            if self._plan.choices.mcp or work.mcp:
                several(words("plan.mcp"), [*self._plan.choices.mcp], work, "mcp", locked=locked)
        with tag("div", "k-row k-wrapping"):
            switch(words("plan.pause"), work, "pause_after", locked=locked)
            switch(words("plan.merge"), work, "merge", locked=work.begun)
        with tag("details", "k-options"):
            text(words("plan.options"), name="summary")
            area(words("plan.options.label"), work, "options", locked=locked, mono=True)

    def offer(self) -> None:
        """A Work has another name: let it be waited for under that."""
        if self._after is not None:
            self._after.set_options(self._plan.others(self._work), value=list(self._work.after))

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_tasks(self) -> None:
        self._tasks.clear()
        with self._tasks:
            for number, task in enumerate(self._work.tasks):
                self._task(number, task)

    def _task(self, number: int, task: TaskDraft) -> None:
        words, locked = self._words, task.locked or self._work.locked
        title = words("plan.task", number=number + 1)
        with tag("li", "k-task-form", aria_label=title):
            with tag("div", "k-row"):
                text(title, "k-strong")
                if task.locked:
                    text(words("plan.locked"), "k-muted k-small")
                with tag("span", "k-work-end"):
                    for icon, label, by in (("arrow_upward", "plan.up", -1), ("arrow_downward", "plan.down", 1)):
                        button_ = small(icon, words(label), lambda by=by: self._move_task(number, by))
                        button_.set_enabled(self._movable(number, by))
                    removing = small("delete", words("plan.task.remove"), lambda: self._remove_task(number))
                    removing.set_enabled(not locked and len(self._work.tasks) > 1)
            with tag("div", "k-row k-wrapping k-fields"):
                line(words("plan.task.name"), task, "name", locked=locked)
                count(words("plan.retries"), task, "retries", most=_MOST_RETRIES, locked=locked)
            area(words("plan.query"), task, "query", hint=words("plan.query.hint"), locked=locked)
            area(words("plan.outline"), task, "outline", locked=locked)

    def _movable(self, number: int, by: int) -> bool:
        at, tasks = number + by, self._work.tasks
        return 0 <= at < len(tasks) and not (self._work.locked or tasks[number].locked or tasks[at].locked)

    def _move_task(self, number: int, by: int) -> None:
        moved(self._work.tasks, number, by)
        self._draw_tasks()

    def _remove_task(self, number: int) -> None:
        del self._work.tasks[number]
        self._draw_tasks()

    def _add_task(self) -> None:
        self._work.tasks.append(TaskDraft())
        self._draw_tasks()


def small(icon: str, label: str, on_click: Callable[..., object]) -> ui.button:
    """A button that is an icon, with its name for those who cannot see it."""
    made = ui.button(icon=icon, on_click=on_click, color=None).props("flat dense round")
    return labelled(made.classes("k-icon-button"), label)


def moved(items: list[T], number: int, by: int) -> None:
    """Put one of several to another place."""
    items.insert(number + by, items.pop(number))
