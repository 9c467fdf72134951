"""The form of a plan, its works and tasks."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from nicegui import ui

from kingdom.web.dashboard.components import button, labelled, tag, text
from kingdom.web.dashboard.workflows.plan_draft import PlanDraft, TaskDraft, WorkDraft
from kingdom.web.dashboard.workflows.widgets import (
    checkbox_field,
    labelled_field,
    multi_select,
    number_field,
    select_field,
    text_area,
    text_field,
)
from kingdom.workflow.plan_model import MAX_RETRIES

if TYPE_CHECKING:
    from nicegui.elements.mixins.validation_element import ValidationElement

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.dashboard.workflows.plan_problems import FieldKey


T = TypeVar("T")


class WorkForm:
    def __init__(self, visit: Visit, plan: PlanForm, number: int, work: WorkDraft) -> None:
        self._words = visit.words
        self._plan = plan
        self._number = number
        self._work = work
        self._after: ui.select | None = None
        title = self._words("plan.work", number=number + 1)
        self.section = tag("section", "k-card k-form", aria_label=title)
        with self.section:
            if work.locked:  # nothing can be changed: collapsed
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
            icon_button(icon, words(label), lambda by=by: plan.move(number, by)).set_enabled(plan.movable(number, by))
        removing = icon_button("delete", words("plan.work.remove"), lambda: plan.remove(number))
        removing.set_enabled(not self._work.begun and len(plan.draft.works) > 1)

    def _fields(self) -> None:
        words, work, locked = self._words, self._work, self._work.locked
        kept = f"{self._plan.name}/{work.uid}"
        engines = sorted({*self._plan.choices.engines, work.engine})
        with tag("div", "k-row k-wrapping k-fields"):
            fields, uid = self._plan.fields, work.uid
            name = text_field(words("plan.name"), work, "name", locked=locked or work.begun, draft=f"{kept}.name")
            fields[uid, "name"] = name
            before = work.name

            def rename() -> None:
                nonlocal before
                if work.name != before:
                    self._plan.renamed(before, work.name)
                    before = work.name

            name.on("blur", rename)
            fields[uid, "engine"] = select_field(words("plan.engine"), engines, work, "engine", locked=locked)
            fields[uid, "model"] = text_field(words("plan.model"), work, "model", locked=locked, draft=f"{kept}.model")
        with tag("div", "k-row k-wrapping k-fields"):
            if len(self._plan.draft.works) > 1:
                others, hint = self._plan.others(work), words("plan.after.hint")
                self._after = multi_select(words("plan.after"), others, work, "after", hint=hint, locked=work.begun)
                fields[uid, "after"] = self._after
            if self._plan.choices.mcp or work.mcp:
                servers = [*self._plan.choices.mcp]
                fields[uid, "mcp"] = multi_select(words("plan.mcp"), servers, work, "mcp", locked=locked)
        with tag("div", "k-row k-wrapping"):
            checkbox_field(words("plan.pause"), work, "pause_after", locked=locked)
            checkbox_field(words("plan.merge"), work, "merge", locked=work.begun)
        with tag("details", "k-options"):
            text(words("plan.options"), name="summary")
            fields[uid, "options"] = text_area(
                words("plan.options.label"), work, "options", locked=locked, mono=True, draft=f"{kept}.options"
            )

    def offer(self) -> None:
        """Update the names that can be waited for, after a work was renamed."""
        if self._after is not None:
            self._after.set_options(self._plan.others(self._work), value=list(self._work.after))

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_tasks(self) -> None:
        self._plan.draft.number()
        self._tasks.clear()
        with self._tasks:
            for number, task in enumerate(self._work.tasks):
                self._task(number, task)

    def _task(self, number: int, task: TaskDraft) -> None:
        words, locked = self._words, task.locked or self._work.locked
        title, kept = words("plan.task", number=number + 1), f"{self._plan.name}/{task.uid}"
        with tag("li", "k-task-form", aria_label=title):
            with tag("div", "k-row"):
                text(title, "k-strong")
                if task.locked:
                    text(words("plan.locked"), "k-muted k-small")
                with tag("span", "k-work-end"):
                    for icon, label, by in (("arrow_upward", "plan.up", -1), ("arrow_downward", "plan.down", 1)):
                        button_ = icon_button(icon, words(label), lambda by=by: self._move_task(number, by))
                        button_.set_enabled(self._movable(number, by))
                    removing = icon_button("delete", words("plan.task.remove"), lambda: self._remove_task(number))
                    removing.set_enabled(not locked and len(self._work.tasks) > 1)
            with tag("div", "k-row k-wrapping k-fields"):
                fields, uid = self._plan.fields, task.uid
                fields[uid, "name"] = text_field(
                    words("plan.task.name"), task, "name", locked=locked, draft=f"{kept}.name"
                )
                fields[uid, "retries"] = number_field(
                    words("plan.retries"), task, "retries", most=MAX_RETRIES, locked=locked
                )
            hint, query = words("plan.query.hint"), f"{kept}.query"
            fields[uid, "query"] = text_area(words("plan.query"), task, "query", hint=hint, locked=locked, draft=query)
            outline = f"{kept}.outline"
            fields[uid, "outline"] = text_area(words("plan.outline"), task, "outline", locked=locked, draft=outline)

    def _movable(self, number: int, by: int) -> bool:
        at, tasks = number + by, self._work.tasks
        return 0 <= at < len(tasks) and not (self._work.locked or tasks[number].locked or tasks[at].locked)

    def _move_task(self, number: int, by: int) -> None:
        move_item(self._work.tasks, number, by)
        self._draw_tasks()

    def _remove_task(self, number: int) -> None:
        del self._work.tasks[number]
        self._draw_tasks()

    def _add_task(self) -> None:
        self._work.tasks.append(TaskDraft(uid=new_uid()))
        self._draw_tasks()


def icon_button(icon: str, label: str, on_click: Callable[..., object]) -> ui.button:
    """Create an icon button with an accessible name."""
    made = ui.button(icon=icon, on_click=on_click, color=None).props("flat dense round")
    return labelled(made.classes("k-icon-button"), label)


def new_uid() -> str:
    """Return an id for a new work or task, unlike any that a draft may have."""
    return secrets.token_hex(6)


def move_item(items: list[T], number: int, by: int) -> None:
    """Move an item of a list by ``by`` places."""
    items.insert(number + by, items.pop(number))


@dataclass(frozen=True, slots=True)
class PlanChoices:
    """The names that can be selected."""

    repositories: list[str]
    mcp: list[str]
    engines: list[str]


class PlanForm:
    """The form of a plan. Input is written into ``draft``."""

    def __init__(
        self, visit: Visit, draft: PlanDraft, choices: PlanChoices, *, of_workflow: bool, name: str = ""
    ) -> None:
        """``name`` is that of the draft in the browser."""
        self.draft = draft
        self.name = name
        self.fields: dict[FieldKey, ValidationElement[Any]] = {}
        """The fields that can be marked as wrong."""
        self._visit = visit
        self._words = visit.words
        self.choices = choices
        self._of_workflow = of_workflow
        with tag("section", "k-card k-pad k-form"):
            self._about()
        self._works = tag("div", "k-column")
        self.redraw()

    def _about(self) -> None:
        words, draft = self._words, self.draft
        if not self._of_workflow:
            self.fields["", "name"] = text_field(words("plan.name"), draft, "name", draft=f"{self.name}/name")
            about = text_area(words("plan.description"), draft, "description", draft=f"{self.name}/description")
            self.fields["", "description"] = about
        with tag("div", "k-row k-wrapping k-fields"):
            self._repositories()
            if self.choices.mcp or draft.mcp:
                self.fields["", "mcp"] = multi_select(words("plan.mcp"), [*self.choices.mcp], draft, "mcp")
            if not self._of_workflow:
                both = {"pause": words("plan.failure.pause"), "fail": words("plan.failure.fail")}
                select_field(words("plan.failure"), both, draft, "on_failure")
        self._bases = tag("div", "k-row k-wrapping k-fields")
        self._draw_bases()

    def _repositories(self) -> None:
        names = sorted({*self.choices.repositories, *self.draft.repositories})

        def chosen() -> None:
            before = self.draft.repositories
            self.draft.repositories = {name: before.get(name, "") for name in choosing.value or ()}
            self._draw_bases()

        label = self._words("plan.repositories")
        with labelled_field(label, "" if names else self._words("plan.repositories.none")):
            choosing = ui.select(names, multiple=True, value=list(self.draft.repositories), on_change=chosen)
        self.fields["", "repositories"] = labelled(choosing.props("outlined dense use-chips").classes("k-field"), label)

    def _draw_bases(self) -> None:
        self._bases.clear()
        with self._bases:
            for name, base in self.draft.repositories.items():
                self._base(name, base)

    def _base(self, name: str, base: str) -> None:
        label = self._words("plan.base", name=name)
        with labelled_field(label):
            typing: ui.input = ui.input(value=base, on_change=lambda: self._starts_from(name, typing.value or ""))
        labelled(typing.props("outlined dense").classes("k-field"), label)

    def _starts_from(self, name: str, base: str) -> None:
        self.draft.repositories[name] = base

    # ── works ─────────────────────────────────────────────────────────────────────────────────────────────────

    def redraw(self) -> None:
        """Redraw the works after they were added, removed or reordered."""
        self.draft.number()
        self._works.clear()
        with self._works:
            self._forms = [WorkForm(self._visit, self, number, work) for number, work in enumerate(self.draft.works)]
            button(self._words("plan.work.add"), self._add, icon="add").classes("k-add-work")

    def others(self, work: WorkDraft) -> list[str]:
        """Return the names of the other works, which this one can wait for."""
        return [one.name for one in self.draft.works if one is not work and one.name]

    def renamed(self, before: str, after: str) -> None:
        """Apply the new name of a work to what refers to it."""
        self.draft.rename_work(before, after)
        for form in self._forms:
            form.offer()

    def remove(self, number: int) -> None:
        self.draft.remove_work(number)
        self.redraw()

    def move(self, number: int, by: int) -> None:
        """Move a work by ``by`` places. Only the two that change places are redrawn: text typed elsewhere is kept."""
        move_item(self.draft.works, number, by)
        self.draft.number()
        for place in sorted((number, number + by)):
            self._forms[place].section.delete()
            with self._works:
                self._forms[place] = WorkForm(self._visit, self, place, self.draft.works[place])
            self._forms[place].section.move(target_index=place)

    def movable(self, number: int, by: int) -> bool:
        """Return whether a work can move by ``by``. It cannot move past a work that has started."""
        at = number + by
        works = self.draft.works
        return 0 <= at < len(works) and not works[number].begun and not works[at].begun

    def _add(self) -> None:
        last = self.draft.works[-1]  # there is always one; the new work gets its engine
        added = WorkDraft(engine=last.engine, model=last.model, options=last.options, uid=new_uid())
        self.draft.works.append(added)
        self.redraw()
