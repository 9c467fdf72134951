"""The page of one workflow, live."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.building import card, tag
from kingdom.web.dashboard.refreshing import Pulse
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.acting import Hand
from kingdom.web.dashboard.workflows.durations import Durations
from kingdom.web.dashboard.workflows.graph import WorkGraph, graph_of
from kingdom.web.dashboard.workflows.happenings import EventLog, Feed
from kingdom.web.dashboard.workflows.heading import Actions, Facts
from kingdom.web.dashboard.workflows.leavings import Checkpoints, Reports, Trees
from kingdom.web.dashboard.workflows.timeline import Timeline
from kingdom.web.dashboard.workflows.voices import Voices
from kingdom.web.dashboard.zone import zone_of
from kingdom.web.views.usage import Usage, read_usage
from kingdom.web.views.workflows import WorkflowEvent, WorkflowFull, read_workflow

if TYPE_CHECKING:
    from nicegui.element import Element

_TICK: Final = 1.0
_RESTING: Final = ("CREATED", "READY", "PAUSED", "FAILED", "COMPLETED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class Look:
    """A workflow at one moment, and what happened since the last one."""

    full: WorkflowFull
    usage: Usage
    events: list[WorkflowEvent]


@page("/workflows/{workflow_id}", title="nav.workflows", nav="workflows")
async def workflow(visit: Visit, workflow_id: str) -> None:
    """One workflow: how it stands, works and tasks, agents' words, checkpoints, reports, events."""
    full, zone = await read_workflow(visit.context, workflow_id), await zone_of(visit)
    place = head(full.name, above=(visit.words("nav.workflows"), "/workflows"))
    pulse = Pulse(visit, lambda event: event.workflow_id == workflow_id)
    hand = Hand(visit, workflow_id, full.name, pulse.wake)
    actions = Actions(visit, hand, place, workflow_id)
    feed = Feed(visit, workflow_id)
    parts: list[_Parts] = []

    async def load() -> Look:
        now = await read_workflow(visit.context, workflow_id)
        # read after the state: all that led to it is told with it
        return Look(now, await read_usage(visit.context, workflow_id), await feed.read_on())

    def draw(look: Look) -> None:
        if not parts or parts[0].gone:
            parts[:] = [_Parts(visit, look.full, hand, zone, parts[0] if parts else None)]
        actions.show(look.full)
        parts[0].show(look)

    body = tag("div", "k-column")
    await pulse.panel(body, load, draw, keep=True)
    ui.timer(_TICK, lambda: parts[0].tick() if parts else None)


class _Parts:
    """Everything below the head."""

    def __init__(self, visit: Visit, full: WorkflowFull, hand: Hand, zone: tzinfo, before: _Parts | None) -> None:
        words = visit.words
        self._durations: Durations = Durations() if before is None else before._durations
        self._facts = Facts(visit, full, zone)
        with tag("div", "k-grid") as self._grid:
            with tag("div", "k-column k-col-7"):
                with card(words("workflow.graph")):
                    self._graph = WorkGraph(words)
                with card(words("workflow.works"), flush=True):
                    self._timeline = Timeline(visit, full.id)
                with card(words("workflow.events"), flush=True):
                    self._log = EventLog(visit, zone)
            with tag("div", "k-column k-col-5"):
                with card(words("workflow.output"), flush=True):
                    self._voices = Voices(visit, full.id)
                with card(words("checkpoint.title"), flush=True):
                    self._checkpoints = Checkpoints(visit, full.id, hand, zone)
                with card(words("report.title"), flush=True) as (body, _):
                    self._reports = Reports(visit, full.id, _card_of(body))
                with card(words("sources.repositories"), flush=True):
                    self._trees = Trees(visit)

    @property
    def gone(self) -> bool:
        """Whether an error took their place."""
        return self._grid.is_deleted

    def show(self, look: Look) -> None:
        """Have how it stands now."""
        full = look.full
        self._durations.take(look.events)
        self._facts.show(full, look.usage)
        self._graph.show(graph_of(full.works))
        self._timeline.show(full.works, self._durations, look.usage.by_work)
        self._voices.active = full.status not in _RESTING or bool(look.events)
        self._checkpoints.show(full)
        self._reports.show(full)
        self._trees.show(full)
        self._log.add(look.events, full.works)

    def tick(self) -> None:
        """Let the time pass."""
        if not self.gone:
            self._timeline.tick(datetime.now(UTC))


def _card_of(body: Element) -> Element:
    assert body.parent_slot is not None
    return body.parent_slot.parent
