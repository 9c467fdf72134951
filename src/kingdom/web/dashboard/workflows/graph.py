"""The works of a workflow as a picture: who waits for whom, from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kingdom.web.dashboard.building import tag, text
from kingdom.web.dashboard.workflows.marks import tone
from kingdom.workflow.domain.plan import Plan
from kingdom.workflow.domain.work import Work

if TYPE_CHECKING:
    from nicegui import ui
    from nicegui.element import Element

    from kingdom.web.dashboard.words import Words

_WIDE: Final = 168
_HIGH: Final = 46
_ACROSS: Final = 52  # between two columns: room for the arrows
_DOWN: Final = 18
_EDGE: Final = 8
_LONGEST: Final = 20  # characters of a name that fit into a box


class Step(Protocol):
    """What the picture knows of a Work."""

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
class Node:
    """A Work in the picture."""

    id: str
    name: str
    status: str
    attempt: int
    column: int
    row: int

    @property
    def x(self) -> int:
        """The left edge."""
        return _EDGE + self.column * (_WIDE + _ACROSS)

    @property
    def y(self) -> int:
        """The top edge."""
        return _EDGE + self.row * (_HIGH + _DOWN)


@dataclass(frozen=True, slots=True)
class Graph:
    """Where each Work stands, and which arrows there are, by the ids of the works."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture."""
        columns = max((node.column for node in self.nodes), default=0) + 1
        rows = max((node.row for node in self.nodes), default=0) + 1
        return 2 * _EDGE + columns * (_WIDE + _ACROSS) - _ACROSS, 2 * _EDGE + rows * (_HIGH + _DOWN) - _DOWN


def graph_of(steps: Sequence[Step]) -> Graph:
    """The picture of a plan. An arrow that others already say (a → b → c: a → c) is left out."""
    plan = Plan([Work(step.id, "", step.sequence, step.name, [], after=tuple(step.after)) for step in steps])
    before = {work.id: plan.before(work) for work in plan.works}
    direct = {work.id: [other.id for other in plan.waits_for(work)] for work in plan.works}
    edges = tuple(
        (other, work.id)
        for work in plan.works
        for other in direct[work.id]
        if not any(other in before[between] for between in direct[work.id])
    )
    column: dict[str, int] = {}
    for work in sorted(plan.works, key=lambda work: len(before[work.id])):  # those it waits for have fewer before them
        column[work.id] = max((column[other] + 1 for other in direct[work.id]), default=0)
    filled: dict[int, int] = {}
    nodes = []
    for step in sorted(steps, key=lambda step: step.sequence):
        at = column[step.id]
        nodes.append(Node(step.id, step.name, str(step.status), step.attempt, at, filled.get(at, 0)))
        filled[at] = filled.get(at, 0) + 1
    return Graph(tuple(nodes), edges)


class WorkGraph:
    """The picture on a page. What changes is changed in place; another plan is drawn anew."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._place = tag("div", "k-graph", role="group", tabindex="0", aria_label=words("workflow.graph"))
        self._drawn: tuple[object, ...] | None = None
        self._boxes: dict[str, tuple[Element, ui.label]] = {}

    def show(self, graph: Graph) -> None:
        """Draw a plan."""
        shape = (*((node.id, node.name, node.column, node.row) for node in graph.nodes), graph.edges)
        if shape != self._drawn:
            self._place.clear()
            with self._place:
                self._draw(graph)
            self._drawn = shape
        for node in graph.nodes:
            box, status = self._boxes[node.id]
            again = f" ×{node.attempt}" if node.attempt > 1 else ""
            box.classes(replace=f"k-node k-node-{tone(node.status)}")
            status.set_text(f"{self._words.of('workflow.status', node.status)}{again}")

    def _draw(self, graph: Graph) -> None:
        wide, high = graph.size
        places = {node.id: node for node in graph.nodes}
        with tag("svg", width=str(wide), height=str(high), viewBox=f"0 0 {wide} {high}"):
            for start, end in graph.edges:
                tag("path", "k-edge", d=_curve(places[start], places[end]))
            self._boxes = {node.id: _box(node) for node in graph.nodes}


def _box(node: Node) -> tuple[Element, ui.label]:
    name = node.name if len(node.name) <= _LONGEST else f"{node.name[: _LONGEST - 1]}…"
    with tag("a", href=f"#{node.id}"), tag("g") as box:
        text(node.name, name="title")
        tag("rect", x=str(node.x), y=str(node.y), width=str(_WIDE), height=str(_HIGH), rx="8")
        _put(text(name, "k-node-name", name="text"), node.x + 12, node.y + 20)
        status = _put(text("", "k-node-status", name="text"), node.x + 12, node.y + 37)
    return box, status


def _put(label: ui.label, x: int, y: int) -> ui.label:
    label.props.update({"x": str(x), "y": str(y)})
    return label


def _curve(start: Node, end: Node) -> str:
    x1, y1 = start.x + _WIDE, start.y + _HIGH // 2
    x2, y2 = end.x - 2, end.y + _HIGH // 2
    bend = max(_ACROSS // 2, (x2 - x1) // 2)
    return f"M {x1} {y1} C {x1 + bend} {y1}, {x2 - bend} {y2}, {x2} {y2} l -7 -4 m 7 4 l -7 4"
