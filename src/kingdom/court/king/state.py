"""State that all parts of the king share: cases, the plan of the current tick, and how both change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kingdom.base.text import one_line, storable
from kingdom.base.times import utc_datetime
from kingdom.bus.errors import InvalidName
from kingdom.court.cancellations import NOTE_FIELD
from kingdom.court.king.admission import Admission, TaskIdPool
from kingdom.court.king.cases import Cases, MessageComposer
from kingdom.court.king.write_ahead_log import LogEntry
from kingdom.court.models import FOLLOW_UP_FIELD, Task
from kingdom.court.packages.installed import Generals
from kingdom.court.pull_requests import PULL_REQUEST_ENDS, OpenedPullRequest, OpenedPullRequests, opened_by
from kingdom.court.queues import EVENTS, TASKS, IdSequences
from kingdom.court.request_threads import RequestThread, RequestThreads, is_request
from kingdom.court.trust.policy import PERMIT_FIELD, TrustPolicy, people_of, permit_of
from kingdom.journal.catalog import (
    EventDiscarded,
    EventDispatched,
    TaskCancelled,
    TaskCreated,
    TaskFailed,
    general_actor,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kingdom.court.config import SystemConfig
    from kingdom.court.king.admission import Gate
    from kingdom.court.king.cases import Case, MessageDraft
    from kingdom.court.king.pending import PendingEvent
    from kingdom.court.loop import Services
    from kingdom.court.models import Event, Message, Result
    from kingdom.journal.catalog import EventData


_MAX_JOURNAL_CHARS: Final = 1000  # of an error


@dataclass(slots=True)
class TickPlan:
    """The changes that one tick makes: collected first, then written to the log, then applied."""

    cases: dict[str, Case | None] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    drafts: list[MessageDraft] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    done: dict[str, str | None] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)  # invalid events, and why; not written to the log
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)
    cancels: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)  # tasks to end: general, request
    landed: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # results of notes; None: a useless note
    opened: list[OpenedPullRequest] = field(default_factory=list)  # by tasks that ended
    threads: list[RequestThread] = field(default_factory=list)  # of requests whose tasks ended
    joined: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)  # events for the task of another
    journal: list[tuple[EventData, str]] = field(default_factory=list)  # with their actors

    def __bool__(self) -> bool:
        return any((self.cases, self.tasks, self.drafts, self.events, self.done, self.slots, self.cancels, self.landed))

    def note(self, line: EventData, actor: str = "king") -> None:
        """Add a line to the journal."""
        self.journal.append((line, actor))

    def new_task(self, task: Task) -> None:
        self.tasks.append(task)
        self.note(TaskCreated(task.id, task.type, task.target_general, task.priority))

    def discard(self, event_id: str, event_type: str, reason: str) -> None:
        """Complete an event without a task."""
        self.done[event_id] = None
        self.note(EventDiscarded(event_id, event_type, reason))

    def entry(self, messages: list[Message]) -> LogEntry:
        return LogEntry(
            cases={root: None if case is None else case.to_dict() for root, case in self.cases.items()},
            tasks=[task.document() for task in self.tasks],
            messages=[message.document() for message in messages],
            events=[event.document() for event in self.events],
            done=dict(self.done),
            slots=dict(self.slots),
            cancels=dict(self.cancels),
            landed=dict(self.landed),
            journal=[(line.spec.name, _journal_fields(line), actor) for line, actor in self.journal],
        )


def _journal_fields(line: EventData) -> dict[str, Any]:
    return {item.key: getattr(line, item.name) for item in line.spec.fields}


class KingState:
    """The open cases, the plan of the current tick, and the changes that go to both."""

    def __init__(self, services: Services, config: SystemConfig, gates: Sequence[Gate], trust: TrustPolicy) -> None:
        self.home = services.home
        self.bus = services.bus
        self.clock = services.clock
        self.config = config
        self.generals = Generals()
        self.trust = trust
        self.cases = Cases()
        self.plan = TickPlan()
        self.tick_again = False  # this tick left something for the next one to do at once
        self.sequences = IdSequences(services.home, services.clock, ZoneInfo(config.timezone))
        self.task_ids = TaskIdPool(self.sequences)
        self.composer = MessageComposer(config)
        self.pull_requests = OpenedPullRequests(services.home)
        self.threads = RequestThreads(services.home)
        self.admission = Admission(services.home, config, self.cases, self.task_ids, gates)

    def open_case(self, case: Case, task: Task) -> None:
        """Open a case with its first task."""
        self.cases.put(case)
        self.plan.cases[case.root] = case
        self.plan.new_task(task)
        if not case.scheduled:
            self.plan.note(EventDispatched(case.events[0], task.id, task.target_general))
        self.plan.drafts += self.composer.started(case, self.notify(case))

    def next_task(self, case: Case, task: Task) -> None:
        """Continue a case with another task."""
        self.admission.release(case.task)
        case.next_task(task.id)
        case.asked = None
        self.changed(case)
        self.plan.new_task(task)
        self.admission.reserve(case, self.clock())

    def changed(self, case: Case) -> None:
        """Mark a case as changed."""
        self.cases.put(case)
        self.plan.cases[case.root] = case

    def end_case(self, case: Case, result: Result, *, announced: bool = True) -> None:
        """Close a case: send its last message and complete its events.

        ``announced``: the general wrote the end to the journal. Otherwise the king does, under the general's name.
        """
        if not announced:
            error = one_line(result.error or result.status, _MAX_JOURNAL_CHARS)
            cancelled = result.status == "cancelled"
            line = TaskCancelled(case.task, error) if cancelled else TaskFailed(case.task, error, result.retry_count)
            self.plan.note(line, general_actor(case.general))
        self.plan.drafts += self.composer.ended(case, self.notify(case), result)
        named = {**(result.model_extra or {}), "task_id": result.task_id}
        for opened in opened_by(named, case.general):
            self.plan.opened.append(opened.after(case.type, self.pull_requests.find(opened.url)))
        if is_request(case.type) and case.topic is not None:
            thread = RequestThread.of_result(case.topic, case.general, named)
            self.plan.threads += [] if thread is None else [thread]
        outcome = None if result.status in ("success", "skipped") else "failed"
        outcome = "cancelled" if result.status == "cancelled" else outcome
        if isinstance(note := named.get(NOTE_FIELD), str) and outcome == "cancelled":
            self._request_comment(case, result, note)
        self.plan.done.update(dict.fromkeys(case.events, outcome))
        self.plan.cases[case.root] = None
        self.cases.close(case.root)
        self.admission.release(case.task)

    def _request_comment(self, case: Case, result: Result, note: str) -> None:
        """Request a comment for the requester of a case that was cancelled while no soldier worked on it.

        A task that never began gets none: the requester has seen no sign of it.
        """
        seen = [case.task] if case.asked is not None else case.former[-1:]
        for task_id in seen:
            self.plan.cancels[task_id] = case.general, result.error or "", note

    def record_work(self) -> None:
        """Record the work of tasks that ended, for events that go on with it. May be repeated."""
        for opened in self.plan.opened:
            self.pull_requests.record(opened)
        for thread in self.plan.threads:
            self.threads.record(thread)

    def work_files(self) -> list[Path]:
        """Return the files that :meth:`record_work` writes."""
        opened = [path for one in self.plan.opened for path in self.pull_requests.files(one)]
        return [*opened, *(self.threads.file(one) for one in self.plan.threads)]

    def notify(self, case: Case) -> str:
        """Return which messages people get about a case: ``all``, ``result`` or ``silent``."""
        general = self.generals.by_name.get(case.general)
        return "all" if general is None else general.manifest.notify

    def follow_up(self, event: PendingEvent, general: str) -> dict[str, Any]:
        """Return the field of a task for a general about a pull request that it opened, or what it opened it for.

        Or about a thread in which it worked. Empty for all others. A general that runs workflows finds its pull
        requests by itself.
        """
        package = self.generals.by_name.get(general)
        if package is None or package.manifest.mode == "workflow" or event.type in PULL_REQUEST_ENDS:
            return {}
        opened = self.pull_requests.find(event.pull_request) if event.opened_by == general else None
        thread = self.threads.find(event.subject) if is_request(event.type) and event.subject is not None else None
        if opened is not None and (thread is None or thread.work_id == opened.work_id):
            return {FOLLOW_UP_FIELD: opened.document()}
        if thread is None or thread.general != general or not thread.is_about(event.repo):
            return {}
        return {FOLLOW_UP_FIELD: thread.document()}

    def denial_reason(self, event: Mapping[str, Any], name: str) -> str | None:
        """Say why a general may not be given an event; None when it may."""
        general = self.generals.by_name.get(name)
        decision = self.trust.judge(people_of(event))
        return self.trust.denial_reason(decision, name, None if general is None else general.manifest)

    def permitted(self, event: Mapping[str, Any], former: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the permit field of a task for an event; empty when ``trust.yaml`` sets no limits.

        ``former`` is the task that this one continues: its limits apply, too.
        """
        permit = self.trust.judge(people_of(event)).permit if self.trust.config.decides else None
        before = None if former is None else permit_of(former)
        if before is not None:
            permit = before if permit is None else before.restricted_by(permit)
        return {} if permit is None else {PERMIT_FIELD: permit.document()}

    async def task_document(self, task_id: str) -> dict[str, Any] | None:
        """Return a task from the queue, finished or not; None when it is unknown."""
        try:
            record = await self.bus.find(task_id)
        except InvalidName:  # ids in commands come from people and may be anything
            return None
        if record is None or record.stream != TASKS:
            return None
        return dict(record.envelope.payload)

    async def cause_document(self, case: Case) -> dict[str, Any] | None:
        """Rebuild the content of a case's task from its first event: retention removes finished tasks."""
        record = await self.bus.find(case.root)
        if record is None or record.stream != EVENTS:
            return None
        event = record.envelope.payload
        found = {"payload": storable(event.get("payload") or {}), **self.permitted(event)}
        return found if event.get("repo") is None else {**found, "repo": storable(event["repo"])}

    def same_task(self, document: dict[str, Any], task_id: str, root: str) -> Task:
        """Copy a task under a new id, for the case with this root."""
        new = {"id": task_id, "created_at": utc_datetime(self.clock()), "status": "pending", "case": root}
        again = {**document, **new}
        return Task.model_validate(again)
