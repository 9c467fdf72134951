"""What a workflow leaves: checkpoints, reports, branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from kingdom.web.dashboard.building import Keyed, badge, button, empty, link, tag, text
from kingdom.web.dashboard.workflows.marks import recoloured, told_in
from kingdom.web.dashboard.workflows.saying import address, moment

if TYPE_CHECKING:
    from datetime import tzinfo

    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.dashboard.workflows.acting import Hand
    from kingdom.web.views.checkpoints import Checkpoint
    from kingdom.web.views.workflows import WorkflowFull, WorkTree


@dataclass(frozen=True, slots=True)
class _Point:
    point: Checkpoint
    resumable: bool


@dataclass(frozen=True, slots=True)
class _Written:
    id: str
    work: str
    task: str
    sections: str


class Checkpoints:
    """The checkpoints, the newest first, with what can be done with each."""

    def __init__(self, visit: Visit, workflow_id: str, hand: Hand, zone: tzinfo) -> None:
        self._visit = visit
        self._zone = zone
        self._words = visit.words
        self._workflow = workflow_id
        self._hand = hand
        self._none = tag("div")
        with self._none:
            empty(self._words("checkpoint.none"), self._words("checkpoint.none.hint"))
        self._points: Keyed[_Point] = Keyed(tag("ol", "k-lines k-points"), lambda one: one.point.id, self._point)

    def show(self, full: WorkflowFull) -> None:
        """Have those of a workflow."""
        can = "resume" in full.allowed
        self._none.set_visibility(not full.checkpoints)
        self._points.show(_Point(point, can and point.valid) for point in reversed(full.checkpoints))

    def _point(self, seen: _Point) -> Callable[[_Point], None]:
        words, point = self._words, seen.point
        work = point.work_name or point.work_id
        with tag("li", "k-point"):
            with tag("div", "k-row k-wrapping"):
                link(work, address("workflows", self._workflow, "checkpoints", point.id), "k-strong")
                text(words("workflow.attempt", number=point.attempt), "k-muted k-small")
                text(moment(point.created_at, self._zone), "k-muted k-small")
                left = text(words("checkpoint.left"), "k-badge k-tone-idle")
            commits = "  ".join(f"{name}@{commit[:10]}" for name, commit in point.hashes.items())
            text(commits, "k-mono k-muted k-wrap", name="div")
            with tag("div", "k-row k-wrapping k-point-actions"):
                link(words("checkpoint.diff"), address("workflows", self._workflow, "checkpoints", point.id))
                resume = button(words("checkpoint.resume"), lambda: self._hand.resume_from(point.id, work))
                button(words("checkpoint.fork"), lambda: self._hand.fork(point.id, work))

        def update(new: _Point) -> None:
            resume.set_enabled(new.resumable)
            left.set_visibility(not new.point.valid)

        update(seen)
        return update


class Reports:
    """The reports that are written."""

    def __init__(self, visit: Visit, workflow_id: str, card: Element) -> None:
        self._words = visit.words
        self._workflow = workflow_id
        self._card = card
        self._reports: Keyed[_Written] = Keyed(tag("ol", "k-lines"), lambda one: one.id, self._report)

    def show(self, full: WorkflowFull) -> None:
        """Have those of a workflow; without any there is nothing to see."""
        written = [
            _Written(task.report_id, work.name, task.name, ", ".join(task.outline))
            for work in full.works
            for task in work.tasks
            if task.report_id is not None and task.report_status == "COMPLETED"
        ]
        self._card.set_visibility(bool(written))
        self._reports.show(written)

    def _report(self, seen: _Written) -> None:
        with tag("li"):
            link(f"{seen.work} / {seen.task}", address("workflows", self._workflow, "reports", seen.id), "k-strong")
            text(seen.sections, "k-muted k-small k-wrap", name="div")


class Trees:
    """Repositories with their branches and folders."""

    def __init__(self, visit: Visit) -> None:
        self._words = visit.words
        self._names: dict[str, str] = {}
        self._none = text(visit.words("sources.repositories.none"), "k-muted k-pad", name="div")
        self._trees: Keyed[WorkTree] = Keyed(tag("ol", "k-lines"), lambda tree: (tree.git_id, tree.work_id), self._tree)

    def show(self, full: WorkflowFull) -> None:
        """Have those of a workflow."""
        self._names = {work.id: work.name for work in full.works}
        self._none.set_visibility(not full.repositories)
        self._trees.show(full.repositories)

    def _tree(self, seen: WorkTree) -> Callable[[WorkTree], None]:
        with tag("li"):
            with tag("div", "k-row k-wrapping"):
                text(seen.name, "k-strong")
                if seen.work_id is not None:
                    text(self._names.get(seen.work_id, seen.work_id), "k-muted")
                status = badge("", "")
            branch = _mono()
            path = _mono()
            error = text("", "k-error k-wrap", name="div")

        def update(new: WorkTree) -> None:
            state = new.status or "PENDING"
            recoloured(status, self._words.of("workflow.status", state), state)
            told_in(branch, new.branch or new.base)
            told_in(path, new.path)
            told_in(error, new.error)

        update(seen)
        return update


def _mono() -> ui.label:
    return text("", "k-mono k-muted k-wrap", name="div")
