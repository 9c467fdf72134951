"""Panels of the workflow page: checkpoints, reports, worktrees, events, agent output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.components import (
    KeyedList,
    badge,
    button,
    empty,
    forget_draft,
    labelled,
    link,
    tag,
    text,
    with_draft,
)
from kingdom.web.dashboard.formats import format_clock, format_minute, page_url
from kingdom.web.dashboard.workflows.widgets import update_badge, update_text
from kingdom.web.envelope import ApiError
from kingdom.web.views.workflow_output import read_output
from kingdom.web.views.workflows import WorkflowEvent, read_events
from kingdom.workflow.overview import event_details, event_tone, names_by_id

if TYPE_CHECKING:
    from datetime import tzinfo

    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.dashboard.workflows.actions import WorkflowActions
    from kingdom.web.views.checkpoints import CheckpointInfo
    from kingdom.web.views.rescues import RescueInfo
    from kingdom.web.views.workflows import WorkflowFull, WorkInfo, WorkTreeInfo


_STOPPED_STATUSES: Final = ("PAUSED", "FAILED")
_MAX_RESCUED_FILES: Final = 5  # named, of one rescue


@dataclass(frozen=True, slots=True)
class _CheckpointRow:
    point: CheckpointInfo
    resumable: bool


@dataclass(frozen=True, slots=True)
class _ReportRow:
    id: str
    work: str
    task: str
    sections: str


class CheckpointList:
    """The checkpoints, newest first, with their actions."""

    def __init__(self, visit: Visit, workflow_id: str, commands: WorkflowActions, zone: tzinfo) -> None:
        self._visit = visit
        self._zone = zone
        self._words = visit.words
        self._workflow = workflow_id
        self._commands = commands
        self._none = tag("div")
        with self._none:
            empty(self._words("checkpoint.none"), self._words("checkpoint.none.hint"))
        self._points: KeyedList[_CheckpointRow] = KeyedList(
            tag("ol", "k-lines k-points"), lambda one: one.point.id, self._point
        )

    def show(self, full: WorkflowFull) -> None:
        can = "goBack" in full.allowed and self._visit.may("resumeWorkflow")
        self._none.set_visibility(not full.checkpoints)
        self._points.show(_CheckpointRow(point, can and point.valid) for point in reversed(full.checkpoints))

    def _point(self, seen: _CheckpointRow) -> Callable[[_CheckpointRow], None]:
        words, point = self._words, seen.point
        work = point.work_name or point.work_id
        with tag("li", "k-point"):
            with tag("div", "k-row k-wrapping"):
                link(work, page_url("workflows", self._workflow, "checkpoints", point.id), "k-strong")
                text(words("workflow.attempt", number=point.attempt), "k-muted k-small")
                text(format_minute(point.created_at, self._zone), "k-muted k-small")
                left = text(words("checkpoint.left"), "k-badge k-tone-idle")
            commits = "  ".join(f"{name}@{commit[:10]}" for name, commit in point.hashes.items())
            text(commits, "k-mono k-muted k-wrap", name="div")
            with tag("div", "k-row k-wrapping k-point-actions"):
                link(words("checkpoint.diff"), page_url("workflows", self._workflow, "checkpoints", point.id))
                resume = button(words("checkpoint.resume"), lambda: self._commands.resume_from(point.id, work))
                hold = button(words("checkpoint.hold"), lambda: self._commands.hold_at(point.id, work))
                resume.set_visibility(self._visit.may("resumeWorkflow"))
                hold.set_visibility(self._visit.may("resumeWorkflow"))
                if self._visit.may("forkWorkflow"):
                    button(words("checkpoint.fork"), lambda: self._commands.fork(point.id, work))

        def update(new: _CheckpointRow) -> None:
            resume.set_enabled(new.resumable)
            hold.set_enabled(new.resumable)
            left.set_visibility(not new.point.valid)

        update(seen)
        return update


class RescueList:
    """What was dropped when the workflow went back, newest first. Its card is hidden while there is nothing."""

    def __init__(self, visit: Visit, workflow_id: str, commands: WorkflowActions, zone: tzinfo, card: Element) -> None:
        self._visit = visit
        self._workflow = workflow_id
        self._commands = commands
        self._zone = zone
        self._card = card
        self._rescues: KeyedList[RescueInfo] = KeyedList(tag("ol", "k-lines"), lambda one: one.id, self._rescue)

    def show(self, found: list[RescueInfo]) -> None:
        self._card.set_visibility(bool(found))
        self._rescues.show(reversed(found))

    def _rescue(self, seen: RescueInfo) -> None:
        with tag("li", data_rescue=seen.id):
            with tag("div", "k-row k-wrapping"):
                text(seen.why, "k-strong k-wrap")
                text(format_minute(seen.made_at, self._zone), "k-muted k-small")
            text(f"{seen.repository}@{seen.commit[:10]}", "k-mono k-muted k-wrap", name="div")
            if seen.files:
                more = seen.file_count - len(seen.files[:_MAX_RESCUED_FILES])
                named = ", ".join(seen.files[:_MAX_RESCUED_FILES]) + (f" (+{more})" if more else "")
                text(named, "k-mono k-small k-wrap", name="div")
            if self._visit.may("restoreWorkflowRescue"):
                button(self._visit.words("rescue.restore"), lambda: self._commands.restore(seen.id))


class ReportList:
    def __init__(self, visit: Visit, workflow_id: str, card: Element) -> None:
        self._words = visit.words
        self._workflow = workflow_id
        self._card = card
        self._reports: KeyedList[_ReportRow] = KeyedList(tag("ol", "k-lines"), lambda one: one.id, self._report)

    def show(self, full: WorkflowFull) -> None:
        """Show the finished reports; hide the card if there are none."""
        written = [
            _ReportRow(task.report_id, work.name, task.name, ", ".join(task.outline))
            for work in full.works
            for task in work.tasks
            if task.report_id is not None and task.report_status == "COMPLETED"
        ]
        self._card.set_visibility(bool(written))
        self._reports.show(written)

    def _report(self, seen: _ReportRow) -> None:
        with tag("li"):
            link(f"{seen.work} / {seen.task}", page_url("workflows", self._workflow, "reports", seen.id), "k-strong")
            text(seen.sections, "k-muted k-small k-wrap", name="div")


class WorktreeList:
    """The repositories with their branches and worktrees."""

    def __init__(self, visit: Visit) -> None:
        self._words = visit.words
        self._names: dict[str, str] = {}
        self._none = text(visit.words("sources.repositories.none"), "k-muted k-pad", name="div")
        self._trees: KeyedList[WorkTreeInfo] = KeyedList(
            tag("ol", "k-lines"), lambda tree: (tree.git_id, tree.work_id), self._tree
        )

    def show(self, full: WorkflowFull) -> None:
        self._names = {work.id: work.name for work in full.works}
        self._none.set_visibility(not full.repositories)
        self._trees.show(full.repositories)

    def _tree(self, seen: WorkTreeInfo) -> Callable[[WorkTreeInfo], None]:
        with tag("li"):
            with tag("div", "k-row k-wrapping"):
                text(seen.name, "k-strong")
                if seen.work_id is not None:
                    text(self._names.get(seen.work_id, seen.work_id), "k-muted")
                status = badge("", "")
            branch = _mono()
            path = _mono()
            error = text("", "k-error k-wrap", name="div")

        def update(new: WorkTreeInfo) -> None:
            state = new.status or "PENDING"
            update_badge(status, self._words.of("workflow.status", state), state)
            update_text(branch, new.branch or new.base)
            update_text(path, new.path)
            update_text(error, new.error)

        update(seen)
        return update


def _mono() -> ui.label:
    return text("", "k-mono k-muted k-wrap", name="div")


_MAX_OUTPUT_LINES: Final = 300
_OUTPUT_POLL_SECONDS: Final = 0.5  # polled, because agent output causes no events
_MAX_OUTPUT_CHARS: Final = 4000  # per line


class AgentOutputPanel:
    """The agent output of a workflow, followed while the page is open."""

    def __init__(self, visit: Visit, workflow_id: str) -> None:
        self._visit = visit
        self._workflow = workflow_id
        self._cursor: str | None = None
        self._speaker = ""
        self._shown: deque[ui.label] = deque()
        self.active = True
        outer = tag("div", "k-output k-voices", role="log", tabindex="0", aria_label=visit.words("workflow.output"))
        with outer:
            self._place = tag("div")
        with self._place:
            self._silence = text(visit.words("workflow.silence"), "k-muted", name="div")
        ui.timer(_OUTPUT_POLL_SECONDS, self._look, immediate=False)

    async def read_on(self) -> None:
        """Show the output since the last call."""
        if self._place.is_deleted:
            return
        heard = await read_output(self._visit.context, self._workflow, cursor=self._cursor)
        self._cursor = heard.cursor
        if heard.items:
            self._silence.set_visibility(False)
        with self._place:
            for said in heard.items:
                speaker = f"{said.work} / {said.task}"
                if speaker != self._speaker:
                    self._add(speaker, "k-speaker")
                    self._speaker = speaker
                self._add(said.text[:_MAX_OUTPUT_CHARS], "k-said")

    def _add(self, words: str, classes: str) -> None:
        self._shown.append(text(words, classes, name="div"))
        if len(self._shown) > _MAX_OUTPUT_LINES:
            self._shown.popleft().delete()

    async def _look(self) -> None:
        if not self.active:
            return
        try:
            await self.read_on()
        except ApiError:  # the workflow was deleted; the rest of the page says so
            self.active = False


_MAX_FOLLOW_UP_CHARS: Final = 16_000


class FollowUpForm:
    """A field below the output for what an agent is to do next, or differently. Hidden while it cannot be sent."""

    def __init__(self, visit: Visit, workflow_id: str, commands: WorkflowActions) -> None:
        words, self._commands, self._draft = visit.words, commands, f"follow-up/{workflow_id}"
        self._may = visit.may("followUpWorkflow")
        self._stopped: list[str] = []
        with tag("div", "k-follow-up k-stack") as self._place:
            self._work = ui.select([], label=words("workflow.follow.work")).props("outlined dense").classes("k-field")
            with tag("div", "k-row"):
                box = ui.textarea(placeholder=words("workflow.follow.hint")).props("outlined dense autogrow rows=1")
                self._box = with_draft(
                    labelled(box.classes("k-field k-grow"), words("workflow.follow.hint")), self._draft
                )
                self._box.props["maxlength"] = _MAX_FOLLOW_UP_CHARS
                self._box.on("keydown.ctrl.enter", self._send)
                button(words("workflow.follow"), self._send, kind="primary", icon="send")
        self._place.set_visibility(False)

    def show(self, full: WorkflowFull) -> None:
        """Show the form if the workflow takes a follow-up now; of several works that stopped, one is chosen."""
        stopped = [work.name for work in full.works if work.status in _STOPPED_STATUSES]
        if stopped != self._stopped:
            self._stopped = stopped
            self._work.set_options(stopped, value=stopped[0] if stopped else None)
        self._work.set_visibility(len(stopped) > 1)
        self._place.set_visibility(self._may and "followUp" in full.allowed)

    async def _send(self) -> None:
        said = (self._box.value or "").strip()
        if said and await self._commands.follow_up(said, self._work.value if len(self._stopped) > 1 else None):
            self._box.value = ""
            await forget_draft(self._draft)


_EVENTS_PER_READ: Final = 500
_MAX_EVENTS: Final = 100  # events that stay on the page
_TYPE_WIDTH: Final = 22  # fits most types
_EVENT_CLASSES: Final = {"bad": "k-text-bad", "good": "k-text-ok", "plain": ""}


class EventReader:
    def __init__(self, visit: Visit, workflow_id: str) -> None:
        self._visit = visit
        self._workflow = workflow_id
        self._after = 0

    async def read_on(self) -> list[WorkflowEvent]:
        """Return the events since the last call."""
        found: list[WorkflowEvent] = []
        more = True
        while more:
            page = await read_events(self._visit.context, self._workflow, after=self._after, limit=_EVENTS_PER_READ)
            found += page.items
            self._after = page.items[-1].sequence if page.items else self._after
            more = page.next_cursor is not None
        return found


class EventLog:
    """The last events, newest on top."""

    def __init__(self, visit: Visit, zone: tzinfo) -> None:
        self._zone = zone
        self._shown: deque[ui.label] = deque()
        with tag("div", "k-events", role="log", tabindex="0", aria_label=visit.words("workflow.events")):
            self._place = tag("ol")

    def add(self, events: list[WorkflowEvent], works: list[WorkInfo]) -> None:
        names = names_by_id(works)
        with self._place:
            for event in events[-_MAX_EVENTS:]:
                line = _event_line(event, names, self._zone)
                line.move(target_index=0)
                self._shown.append(line)
        while len(self._shown) > _MAX_EVENTS:
            self._shown.popleft().delete()


def _event_line(event: WorkflowEvent, names: dict[str, str], zone: tzinfo) -> ui.label:
    """One element per event: elements are expensive on the server, and there are many events."""
    at = format_clock(event.occurred_at.timestamp(), zone)
    words = f"{event.sequence:>4}  {at}  {event.type:<{_TYPE_WIDTH}}  {event_details(event, names)}"
    return text(words, _EVENT_CLASSES[event_tone(event)], name="li")
