"""The form of a plan: its name, what it works on, and its works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from kingdom.web.dashboard.building import button, labelled, tag
from kingdom.web.dashboard.workflows.drafts import Draft, WorkDraft
from kingdom.web.dashboard.workflows.fields import area, choice, field, line, several
from kingdom.web.dashboard.workflows.work_form import WorkForm, moved

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


@dataclass(frozen=True, slots=True)
class Choices:
    """The names there are."""

    repositories: list[str]
    mcp: list[str]
    engines: list[str]


class PlanForm:
    """On a page; made where it is to stand. What is typed goes into ``draft``."""

    def __init__(self, visit: Visit, draft: Draft, choices: Choices, *, of_workflow: bool) -> None:
        self.draft = draft
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
            line(words("plan.name"), draft, "name")
            area(words("plan.description"), draft, "description")
        with tag("div", "k-row k-wrapping k-fields"):
            self._repositories()
            if self.choices.mcp or draft.mcp:
                several(words("plan.mcp"), [*self.choices.mcp], draft, "mcp")
            if not self._of_workflow:
                both = {"pause": words("plan.failure.pause"), "fail": words("plan.failure.fail")}
                choice(words("plan.failure"), both, draft, "on_failure")
        self._bases = tag("div", "k-row k-wrapping k-fields")
        self._draw_bases()

    def _repositories(self) -> None:
        names = sorted({*self.choices.repositories, *self.draft.repositories})

        def chosen() -> None:
            before = self.draft.repositories
            self.draft.repositories = {name: before.get(name, "") for name in choosing.value or ()}
            self._draw_bases()

        label = self._words("plan.repositories")
        with field(label, "" if names else self._words("plan.repositories.none")):
            choosing = ui.select(names, multiple=True, value=list(self.draft.repositories), on_change=chosen)
        labelled(choosing.props("outlined dense use-chips").classes("k-field"), label)

    def _draw_bases(self) -> None:
        self._bases.clear()
        with self._bases:
            for name, base in self.draft.repositories.items():
                self._base(name, base)

    def _base(self, name: str, base: str) -> None:
        label = self._words("plan.base", name=name)
        with field(label):
            typing: ui.input = ui.input(value=base, on_change=lambda: self._starts_from(name, typing.value or ""))
        labelled(typing.props("outlined dense").classes("k-field"), label)

    def _starts_from(self, name: str, base: str) -> None:
        self.draft.repositories[name] = base

    # ── works ─────────────────────────────────────────────────────────────────────────────────────────────────

    def redraw(self) -> None:
        """Draw the works anew: there are others, or in another order."""
        self._works.clear()
        with self._works:
            self._forms = [WorkForm(self._visit, self, number, work) for number, work in enumerate(self.draft.works)]
            button(self._words("plan.work.add"), self._add, icon="add").classes("k-add-work")

    def others(self, work: WorkDraft) -> list[str]:
        """The names of the works one can wait for."""
        return [one.name for one in self.draft.works if one is not work and one.name]

    def renamed(self, before: str, after: str) -> None:
        """Have those that wait for a Work wait for it under its new name, and keep what the YAML said of it."""
        env = self.draft.env
        self.draft.env = {(after if work == before else work, server): env[work, server] for work, server in env}
        for one in self.draft.works:
            one.after = [after if name == before else name for name in one.after]
        for form in self._forms:
            form.offer()

    def remove(self, number: int) -> None:
        """A Work less."""
        gone = self.draft.works.pop(number)
        for one in self.draft.works:
            one.after = [name for name in one.after if name != gone.name]
        self.redraw()

    def move(self, number: int, by: int) -> None:
        """A Work to another place."""
        moved(self.draft.works, number, by)
        self.redraw()

    def movable(self, number: int, by: int) -> bool:
        """Whether a Work can go there: past none that has begun."""
        at = number + by
        works = self.draft.works
        return 0 <= at < len(works) and not works[number].begun and not works[at].begun

    def _add(self) -> None:
        last = self.draft.works[-1]  # there is always one; what plays it is likely to play the next
        self.draft.works.append(WorkDraft(engine=last.engine, model=last.model, options=last.options))
        self.redraw()
