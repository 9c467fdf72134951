"""Progress of a workflow: the graph and the timeline of its works."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

from nicegui import ui

from kingdom.web.dashboard.components import KeyedList, badge, link, tag, text
from kingdom.web.dashboard.formats import format_usd, page_url
from kingdom.web.dashboard.workflows.widgets import status_tone, update_badge, update_text
from kingdom.web.views.workflows import WorkflowEvent
from kingdom.workflow.domain.plan import WorkDependencies
from kingdom.workflow.domain.work import Work

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.dashboard.words import Translations
    from kingdom.web.views.workflows import WorkInfo, WorkTaskInfo


# ── Durations ──


_START_EVENTS: Final = {"WorkStarted": "workId", "TaskStarted": "taskId"}
_END_EVENTS: Final = {
    "WorkCompleted": "workId",
    "TaskCompleted": "taskId",
    "QueryFailed": "taskId",
    "ReportFailed": "taskId",
}
_RESTING_STATUSES: Final = frozenset({"PAUSED", "WAITING", "FAILED", "CANCELLED", "PENDING"})


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time span; without ``end`` it is still running."""

    begin: datetime
    end: datetime | None = None

    def seconds(self, now: datetime) -> float:
        """Return its duration, up to ``now`` if it is still running."""
        return max(0.0, ((self.end or now) - self.begin).total_seconds())


class Durations:
    """The last run of each work and task, computed from the events of a workflow."""

    def __init__(self) -> None:
        self._spans: dict[str, TimeSpan] = {}

    def take(self, events: Iterable[WorkflowEvent]) -> None:
        """Process further events, in order."""
        for event in events:
            if event.type in _START_EVENTS:
                self._spans[str(event.payload[_START_EVENTS[event.type]])] = TimeSpan(event.occurred_at)
            elif event.type in _END_EVENTS:
                self._end(str(event.payload[_END_EVENTS[event.type]]), event.occurred_at)
            elif event.type == "WorkStatusChanged" and event.payload["status"] in _RESTING_STATUSES:
                self._end(str(event.payload["workId"]), event.occurred_at)

    def of(self, item_id: str) -> TimeSpan | None:
        """Return the span of a work or task; None if it never started."""
        return self._spans.get(item_id)

    def _end(self, item_id: str, at: datetime) -> None:
        if (span := self._spans.get(item_id)) is not None and span.end is None:
            self._spans[item_id] = TimeSpan(span.begin, at)


def format_duration(seconds: float, words: Translations) -> str:
    """Format a duration to the second: ``4 s``, ``2 min 5 s``, ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 60:
        return words("time.seconds", n=whole)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return words("time.exactly", n=minutes, s=rest)
    hours, minutes = divmod(minutes, 60)
    return words("time.hours", n=hours, m=minutes)


# ── Timeline ──


@dataclass(frozen=True, slots=True)
class WorkRow:
    """A work with its cost and durations."""

    work: WorkInfo
    cost_usd: float
    span: TimeSpan | None
    spans: tuple[TimeSpan | None, ...]
    """Durations of its tasks."""


@dataclass(frozen=True, slots=True)
class _TaskRow:
    task: WorkTaskInfo
    span: TimeSpan | None
    waiting: bool
    """Its work waits for the answer to a question."""

    @property
    def status(self) -> str:
        return "WAITING" if self.waiting and self.task.status == "RUNNING" else str(self.task.status)


class Timeline:
    def __init__(self, visit: Visit, workflow_id: str) -> None:
        self._visit = visit
        self._words = visit.words
        self._workflow = workflow_id
        self._running: dict[str, tuple[ui.label, TimeSpan]] = {}
        self._works: KeyedList[WorkRow] = KeyedList(
            tag("ol", "k-works", aria_label=self._words("workflow.works")), lambda seen: seen.work.id, self._work
        )

    def show(self, works: list[WorkInfo], durations: Durations, costs: dict[str, float]) -> None:
        self._works.show(
            WorkRow(
                work,
                costs.get(work.name, 0.0),
                durations.of(work.id),
                tuple(durations.of(task.id) for task in work.tasks),
            )
            for work in works
        )

    def tick(self, now: datetime) -> None:
        """Update the durations of what is running."""
        for label, span in self._running.values():
            label.set_text(format_duration(span.seconds(now), self._words))

    def _work(self, seen: WorkRow) -> Callable[[WorkRow], None]:
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
            tasks: KeyedList[_TaskRow] = KeyedList(tag("ol", "k-tasks"), lambda one: one.task.id, self._task)

        def update(new: WorkRow) -> None:
            work = new.work
            update_badge(status, words.of("workflow.status", work.status), work.status)
            update_text(played, work.engine if work.model is None else f"{work.engine} · {work.model}")
            update_text(attempt, words("workflow.attempt", number=work.attempt) if work.attempt > 1 else "")
            update_text(waits, words("workflow.after", names=", ".join(work.after)) if work.after else "")
            update_text(error, work.error)
            update_text(cost, format_usd(new.cost_usd) if new.cost_usd else "")
            self._timed(work.id, took, new.span, running=work.status == "RUNNING")
            mark.set_visibility(work.checkpoint_id is not None)
            if work.checkpoint_id is not None:
                mark.props["href"] = page_url("workflows", self._workflow, "checkpoints", work.checkpoint_id)
            waiting = work.status == "WAITING"
            tasks.show(_TaskRow(task, span, waiting) for task, span in zip(work.tasks, new.spans, strict=True))

        update(seen)
        return update

    def _task(self, seen: _TaskRow) -> Callable[[_TaskRow], None]:
        words = self._words
        with tag("li", "k-task"):
            with tag("details"):
                with tag("summary"):
                    status = badge("", "")
                    text(seen.task.name, "k-wrap")
                    state = text("", "k-muted k-small")
                    attempt = text("", "k-small k-attempt")
                    took = text("", "k-muted k-small k-took")
                text(words("workflow.query"), "k-label", name="div")
                query = text("", "k-words", name="pre")
                answer_label = text(words("workflow.answer"), "k-label", name="div")
                answer = text("", "k-words", name="pre")
            report = link(words("report.mark"), "#", "k-small k-task-report")
            error = text("", "k-error k-wrap", name="div")

        def update(new: _TaskRow) -> None:
            task = new.task
            update_badge(status, words.of("workflow.status", new.status), new.status)
            update_text(state, self._state(new))
            update_text(attempt, words("workflow.attempt", number=task.attempt) if task.attempt > 1 else "")
            update_text(error, task.error)
            query.set_text(task.query)
            answer_label.set_visibility(bool(task.response))
            update_text(answer, task.response)
            self._timed(task.id, took, new.span, running=new.status == "RUNNING")
            ready = task.report_status == "COMPLETED" and task.report_id is not None
            report.set_visibility(ready)
            if ready:
                report.props["href"] = page_url("workflows", self._workflow, "reports", str(task.report_id))

        update(seen)
        return update

    def _state(self, row: _TaskRow) -> str:
        """Describe what a running task is doing."""
        if row.status != "RUNNING":
            return ""
        return self._words("workflow.writing" if row.task.report_status == "GENERATING" else "workflow.asking")

    def _timed(self, item_id: str, label: ui.label, span: TimeSpan | None, *, running: bool) -> None:
        self._running.pop(item_id, None)
        update_text(
            label, "" if span is None else format_duration(span.seconds(datetime.now(span.begin.tzinfo)), self._words)
        )
        if span is not None and running and span.end is None:
            self._running[item_id] = label, span
        elif span is not None and span.end is None:
            label.set_visibility(False)  # interrupted at an unknown time


# ── Graph ──


_BOX_WIDTH: Final = 168
_BOX_HEIGHT: Final = 46
_COLUMN_GAP: Final = 52  # between two columns: room for the arrows
_ROW_GAP: Final = 18
_MARGIN: Final = 8
_MAX_NAME_CHARS: Final = 20  # that fit into a box


class GraphWork(Protocol):
    """What the graph needs to know of a work."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def after(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A work in the graph."""

    id: str
    name: str
    status: str
    attempt: int
    column: int
    row: int

    @property
    def x(self) -> int:
        return _MARGIN + self.column * (_BOX_WIDTH + _COLUMN_GAP)

    @property
    def y(self) -> int:
        return _MARGIN + self.row * (_BOX_HEIGHT + _ROW_GAP)


@dataclass(frozen=True, slots=True)
class WorkflowGraph:
    """Positions of the works, and arrows as pairs of work ids."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str], ...]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the graph."""
        columns = max((node.column for node in self.nodes), default=0) + 1
        rows = max((node.row for node in self.nodes), default=0) + 1
        return 2 * _MARGIN + columns * (_BOX_WIDTH + _COLUMN_GAP) - _COLUMN_GAP, 2 * _MARGIN + rows * (
            _BOX_HEIGHT + _ROW_GAP
        ) - _ROW_GAP


def layout_graph(steps: Sequence[GraphWork]) -> WorkflowGraph:
    """Lay out a plan. Arrows that others imply (a → c beside a → b → c) are omitted."""
    plan = WorkDependencies(
        [Work(step.id, "", step.sequence, step.name, [], after=tuple(step.after)) for step in steps]
    )
    before = {work.id: plan.before(work) for work in plan.works}
    direct = {work.id: [other.id for other in plan.waits_for(work)] for work in plan.works}
    edges = tuple(
        (other, work.id)
        for work in plan.works
        for other in direct[work.id]
        if not any(other in before[between] for between in direct[work.id])
    )
    column: dict[str, int] = {}
    for work in sorted(plan.works, key=lambda work: len(before[work.id])):  # a work comes after those it waits for
        column[work.id] = max((column[other] + 1 for other in direct[work.id]), default=0)
    filled: dict[int, int] = {}
    nodes = []
    for step in sorted(steps, key=lambda step: step.sequence):
        at = column[step.id]
        nodes.append(GraphNode(step.id, step.name, str(step.status), step.attempt, at, filled.get(at, 0)))
        filled[at] = filled.get(at, 0) + 1
    return WorkflowGraph(tuple(nodes), edges)


class WorkGraph:
    """The graph on a page. Status changes update it in place; a new plan redraws it."""

    def __init__(self, words: Translations) -> None:
        self._words = words
        self._place = tag("div", "k-graph", role="group", tabindex="0", aria_label=words("workflow.graph"))
        self._drawn: tuple[object, ...] | None = None
        self._boxes: dict[str, tuple[Element, ui.label]] = {}

    def show(self, graph: WorkflowGraph) -> None:
        shape = (*((node.id, node.name, node.column, node.row) for node in graph.nodes), graph.edges)
        if shape != self._drawn:
            self._place.clear()
            with self._place:
                self._draw(graph)
            self._drawn = shape
        for node in graph.nodes:
            box, status = self._boxes[node.id]
            again = f" ×{node.attempt}" if node.attempt > 1 else ""
            box.classes(replace=f"k-node k-node-{status_tone(node.status)}")
            status.set_text(f"{self._words.of('workflow.status', node.status)}{again}")

    def _draw(self, graph: WorkflowGraph) -> None:
        wide, high = graph.size
        places = {node.id: node for node in graph.nodes}
        with tag("svg", width=str(wide), height=str(high), viewBox=f"0 0 {wide} {high}"):
            for start, end in graph.edges:
                tag("path", "k-edge", d=_curve(places[start], places[end]))
            self._boxes = {node.id: _box(node) for node in graph.nodes}


def _box(node: GraphNode) -> tuple[Element, ui.label]:
    name = node.name if len(node.name) <= _MAX_NAME_CHARS else f"{node.name[: _MAX_NAME_CHARS - 1]}…"
    with tag("a", href=f"#{node.id}"), tag("g") as box:
        text(node.name, name="title")
        tag("rect", x=str(node.x), y=str(node.y), width=str(_BOX_WIDTH), height=str(_BOX_HEIGHT), rx="8")
        _put(text(name, "k-node-name", name="text"), node.x + 12, node.y + 20)
        status = _put(text("", "k-node-status", name="text"), node.x + 12, node.y + 37)
    return box, status


def _put(label: ui.label, x: int, y: int) -> ui.label:
    label.props.update({"x": str(x), "y": str(y)})
    return label


def _curve(start: GraphNode, end: GraphNode) -> str:
    x1, y1 = start.x + _BOX_WIDTH, start.y + _BOX_HEIGHT // 2
    x2, y2 = end.x - 2, end.y + _BOX_HEIGHT // 2
    bend = max(_COLUMN_GAP // 2, (x2 - x1) // 2)
    return f"M {x1} {y1} C {x1 + bend} {y1}, {x2 - bend} {y2}, {x2} {y2} l -7 -4 m 7 4 l -7 4"
