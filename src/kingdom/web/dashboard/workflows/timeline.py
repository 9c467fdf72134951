"""The works of a workflow and their tasks, one below the other, as they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from nicegui import ui

from kingdom.web.dashboard.building import Keyed, badge, link, tag, text
from kingdom.web.dashboard.building.formats import money
from kingdom.web.dashboard.workflows.durations import Durations, Span, spoken
from kingdom.web.dashboard.workflows.marks import recoloured, told_in
from kingdom.web.dashboard.workflows.saying import address

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.workflows import Work, WorkTask


@dataclass(frozen=True, slots=True)
class SeenWork:
    """A Work with what others know of it."""

    work: Work
    cost_usd: float
    span: Span | None
    spans: tuple[Span | None, ...]
    """Of its tasks."""


@dataclass(frozen=True, slots=True)
class _SeenTask:
    task: WorkTask
    span: Span | None


class Timeline:
    """On a page; made where it is to stand."""

    def __init__(self, visit: Visit, workflow_id: str) -> None:
        self._visit = visit
        self._words = visit.words
        self._workflow = workflow_id
        self._running: dict[str, tuple[ui.label, Span]] = {}
        self._works: Keyed[SeenWork] = Keyed(
            tag("ol", "k-works", aria_label=self._words("workflow.works")), lambda seen: seen.work.id, self._work
        )

    def show(self, works: list[Work], durations: Durations, costs: dict[str, float]) -> None:
        """Have these works."""
        self._works.show(
            SeenWork(
                work,
                costs.get(work.name, 0.0),
                durations.of(work.id),
                tuple(durations.of(task.id) for task in work.tasks),
            )
            for work in works
        )

    def tick(self, now: datetime) -> None:
        """Let the time pass for what goes on."""
        for label, span in self._running.values():
            label.set_text(spoken(span.seconds(now), self._words))

    def _work(self, seen: SeenWork) -> Callable[[SeenWork], None]:
        words = self._words
        with tag("li", "k-work", id=seen.work.id):
            with tag("div", "k-work-head"):
                status = badge("", "")
                text(seen.work.name, "k-strong k-wrap")
                played = text("", "k-muted k-small")
                attempt = text("", "k-small k-attempt")
                with tag("span", "k-work-end"):
                    mark = link(words("checkpoint.mark"), "#", "k-checkpoint-mark")
                    cost = text("", "k-muted k-small")
                    took = text("", "k-muted k-small k-took")
            waits = text("", "k-muted k-small", name="div")
            error = text("", "k-error k-wrap", name="div")
            tasks: Keyed[_SeenTask] = Keyed(tag("ol", "k-tasks"), lambda one: one.task.id, self._task)

        def update(new: SeenWork) -> None:
            work = new.work
            recoloured(status, words.of("workflow.status", work.status), work.status)
            told_in(played, work.engine if work.model is None else f"{work.engine} · {work.model}")
            told_in(attempt, words("workflow.attempt", number=work.attempt) if work.attempt > 1 else "")
            told_in(waits, words("workflow.after", names=", ".join(work.after)) if work.after else "")
            told_in(error, work.error)
            told_in(cost, money(new.cost_usd) if new.cost_usd else "")
            self._timed(work.id, took, new.span, running=work.status == "RUNNING")
            mark.set_visibility(work.checkpoint_id is not None)
            if work.checkpoint_id is not None:
                mark.props["href"] = address("workflows", self._workflow, "checkpoints", work.checkpoint_id)
            tasks.show(_SeenTask(task, span) for task, span in zip(work.tasks, new.spans, strict=True))

        update(seen)
        return update

    def _task(self, seen: _SeenTask) -> Callable[[_SeenTask], None]:
        words = self._words
        with tag("li", "k-task"):
            with tag("details"):
                with tag("summary"):
                    status = badge("", "")
                    text(seen.task.name, "k-wrap")
                    state = text("", "k-muted k-small")
                    attempt = text("", "k-small k-attempt")
                    report = link(words("report.mark"), "#", "k-small")
                    took = text("", "k-muted k-small k-took")
                text(words("workflow.query"), "k-label", name="div")
                query = text("", "k-words", name="pre")
                told = text(words("workflow.answer"), "k-label", name="div")
                answer = text("", "k-words", name="pre")
            error = text("", "k-error k-wrap", name="div")

        def update(new: _SeenTask) -> None:
            task = new.task
            recoloured(status, words.of("workflow.status", task.status), task.status)
            told_in(state, self._state(task))
            told_in(attempt, words("workflow.attempt", number=task.attempt) if task.attempt > 1 else "")
            told_in(error, task.error)
            query.set_text(task.query)
            told.set_visibility(bool(task.response))
            told_in(answer, task.response)
            self._timed(task.id, took, new.span, running=task.status == "RUNNING")
            ready = task.report_status == "COMPLETED" and task.report_id is not None
            report.set_visibility(ready)
            if ready:
                report.props["href"] = address("workflows", self._workflow, "reports", str(task.report_id))

        update(seen)
        return update

    def _state(self, task: WorkTask) -> str:
        """What a task that runs is at."""
        if task.status != "RUNNING":
            return ""
        return self._words("workflow.writing" if task.report_status == "GENERATING" else "workflow.asking")

    def _timed(self, item_id: str, label: ui.label, span: Span | None, *, running: bool) -> None:
        self._running.pop(item_id, None)
        told_in(label, "" if span is None else spoken(span.seconds(datetime.now(span.begin.tzinfo)), self._words))
        if span is not None and running and span.end is None:
            self._running[item_id] = label, span
        elif span is not None and span.end is None:
            label.set_visibility(False)  # it was cut off: nobody knows when
