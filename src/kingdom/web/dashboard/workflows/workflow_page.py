"""The page of one workflow, updated live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.components import badge, button, card, link, tag, text
from kingdom.web.dashboard.formats import court_timezone, format_minute, format_usd, page_url
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.task_actions import draw_answer_form
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.actions import WorkflowActions
from kingdom.web.dashboard.workflows.panels import (
    AgentOutputPanel,
    CheckpointList,
    EventLog,
    EventReader,
    FollowUpForm,
    ReportList,
    RescueList,
    WorktreeList,
)
from kingdom.web.dashboard.workflows.progress import Durations, Timeline, WorkGraph, layout_graph
from kingdom.web.dashboard.workflows.pull_request_panel import draw_pull_requests
from kingdom.web.dashboard.workflows.widgets import update_badge, update_progress, update_text, workflow_status
from kingdom.web.views.rescues import RescueInfo, list_rescues
from kingdom.web.views.workflow_output import WorkflowUsage, read_usage
from kingdom.web.views.workflows import LandingInfo, WorkflowEvent, WorkflowFull, WorkTaskInfo, read_workflow
from kingdom.workflow.domain.statuses import WORKFLOW_ACTIVE_STATUSES

if TYPE_CHECKING:
    from nicegui.element import Element


_STOPPED_STATUSES: Final = ("PAUSED", "WAITING", "FAILED")


class ActionButtons:
    """Buttons of the workflow's actions; actions that are not allowed now are hidden or disabled."""

    def __init__(self, visit: Visit, commands: WorkflowActions, place: Element, workflow_id: str) -> None:
        words = visit.words
        self._visit = visit
        with place:
            self._start = self._button(words("act.start"), commands.start, "play_arrow", "primary")
            self._pause = self._button(words("act.pause"), commands.pause, "pause", "primary")
            self._retry = self._button(words("act.retry"), commands.retry, "play_arrow", "primary")
            self._resume = self._button(words("act.resume.last"), commands.resume, "replay")
            self._land = self._button(words("act.land"), commands.land, "merge")
            self._plan = button(
                words("act.plan"), lambda: ui.navigate.to(page_url("workflows", workflow_id, "plan")), icon="edit"
            )
            self._cancel = self._button(words("act.cancel"), commands.cancel, "block", "danger")
            self._not_land = self._button(words("act.not_land"), commands.give_up_landing, "block", "danger")
            with button("", icon="more_vert").classes("k-more") as more:
                more.props["aria-label"] = words("act.more")
                more.props["aria-haspopup"] = "true"
                more.set_visibility(visit.may("deleteWorkflow"))
                with ui.menu().props("role=menu"):
                    ui.menu_item(words("act.keep"), commands.keep).props("role=menuitem")
                    self._delete = ui.menu_item(words("act.delete"), commands.delete).props("role=menuitem")
        self._retry_words = {True: words("act.retry"), False: words("act.resume")}

    def show(self, full: WorkflowFull) -> None:
        """Show or enable the allowed actions."""
        may_operate = self._visit.may("startWorkflow")  # and all the others: they need the same role
        allowed = set(full.allowed) if may_operate else set()
        stopped = any(work.status in _STOPPED_STATUSES for work in full.works)
        self._start.set_visibility("start" in allowed)
        self._pause.set_visibility("pause" in allowed)
        for one in (self._retry, self._resume):
            one.set_visibility("resume" in allowed)
        self._resume.set_visibility("resume" in allowed and stopped)
        self._retry.set_visibility("resume" in allowed and not full.asking)  # an answer makes it go on
        self._retry.set_text(self._retry_words[stopped])
        self._land.set_visibility("land" in allowed)
        self._plan.set_visibility(may_operate)
        self._plan.set_enabled("modify" in allowed)
        self._cancel.set_visibility("cancel" in allowed and full.land_again is None)
        self._not_land.set_visibility("cancel" in allowed and full.land_again is not None)
        self._delete.set_enabled("delete" in allowed)

    @staticmethod
    def _button(words: str, act: Callable[[], Awaitable[None]], icon: str, kind: str = "") -> ui.button:
        return button(words, act, kind=kind, icon=icon)


class StatusCard:
    """Status, progress, cost and description of the workflow."""

    def __init__(self, visit: Visit, full: WorkflowFull, zone: tzinfo) -> None:
        self._words = words = visit.words
        self._zone = zone
        with tag("section", "k-card k-workflow-head", aria_label=words("workflow.status")):
            with tag("div", "k-row k-wrapping"):
                self._status = badge("", "")
                self._bar = tag("div", "k-progress", role="progressbar", aria_valuemin="0")
                self._bar.props["aria-label"] = words("workflow.column.progress")
                with self._bar:
                    self._fill = tag("div")
                self._count = text("", "k-muted")
                self._cost = text("", "k-strong")
                self._tokens = text("", "k-muted")
            self._reason = text("", "k-reason k-wrap", name="div")
            self._reason.props["role"] = "status"
            self._land_again = text("", "k-muted k-small", name="div")
            with tag("div", "k-row k-wrapping k-muted k-small k-more-facts"):
                if full.issue_key:
                    text(full.issue_key, "k-mono")
                text(words("workflow.created", at=format_minute(full.created_at, zone)))
                if full.template_id:
                    link(words("workflow.template"), page_url("templates", full.template_id))
                if full.forked_from:
                    text(words("workflow.forked", checkpoint=full.forked_from))
                text(full.id, "k-mono")
            if full.description:
                text(full.description, "k-wrap", name="div")
            self._landings = tag("div", "k-column k-small")
            self._landed: list[LandingInfo] = []

    def show(self, full: WorkflowFull, usage: WorkflowUsage) -> None:
        words = self._words
        status = workflow_status(full.status, asking=full.asking)
        update_badge(self._status, words.of("workflow.status", status), status)
        update_progress(self._bar, self._fill, full.works_completed, full.works_total, bad=bool(full.works_failed))
        self._count.set_text(words("workflow.progress", done=full.works_completed, total=full.works_total))
        self._cost.set_text(format_usd(usage.cost_usd))
        self._tokens.set_text(words("workflow.tokens", count=f"{usage.tokens.total:,}", runs=usage.runs))
        idle = full.status in WORKFLOW_ACTIVE_STATUSES and not full.engine_running
        reason = None if full.asking or full.reason is None else words.reason(full.reason)  # the question stands below
        update_text(self._reason, words("workflow.engine.none") if idle else reason)
        again = full.land_again
        at = None if again is None else format_minute(again.at, self._zone)
        update_text(self._land_again, None if again is None else words("workflow.land.again", at=at, tries=again.tries))
        if full.landings != self._landed:
            self._landed = full.landings
            self._landings.clear()
            with self._landings:
                for landing in full.landings:
                    self._show_landing(landing)

    def _show_landing(self, landing: LandingInfo) -> None:
        words = self._words
        with tag("div", "k-row k-wrapping", data_landing=landing.name):
            if landing.url:
                ui.link(words("workflow.landed", name=landing.name, number=landing.number), landing.url, new_tab=True)
            elif landing.commit:
                text(words("workflow.pushed", name=landing.name, remote=landing.remote))
            text(landing.branch, "k-mono k-muted")
            if landing.error:
                text(landing.error, "k-reason k-wrap", name="div")


class QuestionCard:
    """The question of an agent that waits for an answer. Text typed into it survives a refresh."""

    def __init__(self, visit: Visit, commands: WorkflowActions, zone: tzinfo) -> None:
        self._visit = visit
        self._commands = commands
        self._zone = zone
        self._place = tag("div", "k-asked")
        self._shown: tuple[str, WorkTaskInfo] | None = None

    def show(self, full: WorkflowFull) -> None:
        """Show the open question, if there is one."""
        works = [work for work in full.works if work.status == "WAITING"] if "answer" in full.allowed else []
        asked = next(((work.name, task) for work in works for task in work.tasks if task.question), None)
        if asked == self._shown:
            return
        self._shown = asked
        self._place.clear()
        if asked is not None:
            with self._place:
                self._draw(full.id, *asked)

    def _draw(self, workflow_id: str, work: str, task: WorkTaskInfo) -> None:
        words = self._visit.words
        with card(words("workflow.asked", work=work), "k-asking"), tag("div", "k-stack"):
            if task.deadline is not None:
                at = format_minute(task.deadline, self._zone)
                text(words("court.deadline", at=at), "k-small k-muted", name="p")
            draw_answer_form(
                self._visit, workflow_id, task.question or "", task.choices, self._commands.answer, lambda: None
            )


_TICK_SECONDS: Final = 1.0
_DROPPING_EVENTS: Final = ("WorkflowResumed", "WorkflowPaused", "WorkflowCancelled", "WorkflowFailed")
_RESTING_STATUSES: Final = ("CREATED", "READY", "PAUSED", "FAILED", "COMPLETED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class WorkflowPageData:
    """State and usage of a workflow, and the events since the last read."""

    full: WorkflowFull
    usage: WorkflowUsage
    events: list[WorkflowEvent]
    rescues: list[RescueInfo]


@page("/workflows/{workflow_id}", title="nav.workflows", nav="workflows")
async def workflow_page(visit: Visit, workflow_id: str) -> None:
    """The page of one workflow."""
    full, zone = await read_workflow(visit.context, workflow_id), await court_timezone(visit)
    place = page_head(full.name, above=(visit.words("nav.workflows"), "/workflows"))
    refresher = PageRefresher(visit, lambda event: event.workflow_id == workflow_id)
    kept: list[RescueInfo] | None = None  # None: to be read

    def acted() -> None:
        nonlocal kept
        kept = None
        refresher.wake()

    commands = WorkflowActions(visit, workflow_id, full.name, acted)
    actions = ActionButtons(visit, commands, place, workflow_id)
    feed = EventReader(visit, workflow_id)
    parts: list[_PageParts] = []

    async def load() -> WorkflowPageData:
        nonlocal kept
        now = await read_workflow(visit.context, workflow_id)
        # read after the state, so that the events include all that led to it
        usage, events = await read_usage(visit.context, workflow_id), await feed.read_on()
        if kept is None or any(event.type in _DROPPING_EVENTS for event in events):  # they are read with git
            kept = await list_rescues(visit.context, workflow_id)
        return WorkflowPageData(now, usage, events, kept)

    def draw(look: WorkflowPageData) -> None:
        if not parts or parts[0].gone:
            parts[:] = [_PageParts(visit, look.full, commands, zone, parts[0] if parts else None)]
        actions.show(look.full)
        parts[0].show(look)

    body = tag("div", "k-column")
    await refresher.panel(body, load, draw, keep=True)
    if any(landing.number is not None for landing in full.landings):
        await draw_pull_requests(visit, workflow_id, zone)
    ui.timer(_TICK_SECONDS, lambda: parts[0].tick() if parts else None)


class _PageParts:
    """The content below the page header."""

    def __init__(
        self, visit: Visit, full: WorkflowFull, commands: WorkflowActions, zone: tzinfo, before: _PageParts | None
    ) -> None:
        words = visit.words
        self._durations: Durations = Durations() if before is None else before._durations
        self._facts = StatusCard(visit, full, zone)
        self._question = QuestionCard(visit, commands, zone)
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
                    self._voices = AgentOutputPanel(visit, full.id)
                    self._follow_up = FollowUpForm(visit, full.id, commands)
                with card(words("checkpoint.title"), flush=True):
                    self._checkpoints = CheckpointList(visit, full.id, commands, zone)
                with card(words("rescue.title"), flush=True) as (body, _):
                    self._rescues = RescueList(visit, full.id, commands, zone, _card_of(body))
                with card(words("report.title"), flush=True) as (body, _):
                    self._reports = ReportList(visit, full.id, _card_of(body))
                with card(words("sources.repositories"), flush=True):
                    self._trees = WorktreeList(visit)

    @property
    def gone(self) -> bool:
        """Whether an error replaced the content."""
        return self._grid.is_deleted

    def show(self, look: WorkflowPageData) -> None:
        full = look.full
        self._durations.take(look.events)
        self._facts.show(full, look.usage)
        self._question.show(full)
        self._graph.show(layout_graph(full.works))
        self._timeline.show(full.works, self._durations, look.usage.by_work)
        self._voices.active = full.status not in _RESTING_STATUSES or bool(look.events)
        self._follow_up.show(full)
        self._checkpoints.show(full)
        self._rescues.show(look.rescues)
        self._reports.show(full)
        self._trees.show(full)
        self._log.add(look.events, full.works)

    def tick(self) -> None:
        """Update the durations of what is running."""
        if not self.gone:
            self._timeline.tick(datetime.now(UTC))


def _card_of(body: Element) -> Element:
    assert body.parent_slot is not None
    return body.parent_slot.parent
