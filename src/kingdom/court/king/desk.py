"""What all parts of the king's work share: the cases in hand, the plan of this look, and how both change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kingdom.bus.errors import InvalidName
from kingdom.court.king.admission import Admission
from kingdom.court.king.cases import Cases
from kingdom.court.king.cleaning import storable
from kingdom.court.king.identifiers import TaskIds
from kingdom.court.king.messages import Speaker
from kingdom.court.king.plan import Plan
from kingdom.court.king.times import moment_of
from kingdom.court.models import Task
from kingdom.court.packages.loading import Generals
from kingdom.court.queues import EVENTS, TASKS
from kingdom.court.sequences import Sequences
from kingdom.court.trust.judging import Trust
from kingdom.court.trust.people import people_of
from kingdom.court.trust.permit import FIELD, permit_of
from kingdom.journal.catalog import EventDispatched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.court.config.system import SystemConfig
    from kingdom.court.king.cases import Case
    from kingdom.court.king.gates import Gate
    from kingdom.court.loop import Services
    from kingdom.court.models import Result


class Desk:
    """The king's desk."""

    def __init__(self, services: Services, config: SystemConfig, gates: Sequence[Gate], trust: Trust) -> None:
        self.home = services.home
        self.bus = services.bus
        self.clock = services.clock
        self.config = config
        self.generals = Generals()
        self.trust = trust
        self.cases = Cases()
        self.plan = Plan()
        self.look_again = False  # something came of this look that the next one should see at once
        self.sequences = Sequences(services.home, services.clock)
        self.task_ids = TaskIds(self.sequences)
        self.speaker = Speaker(config)
        self.admission = Admission(services.home, config, self.cases, self.task_ids, gates)

    def open_case(self, case: Case, task: Task) -> None:
        """A case begins with its first task."""
        self.cases.put(case)
        self.plan.cases[case.root] = case
        self.plan.new_task(task)
        if not case.scheduled:
            self.plan.journal.append(EventDispatched(case.events[0], task.id, task.target_general))
        self.plan.drafts += self.speaker.started(case, self.notify(case))

    def next_task(self, case: Case, task: Task) -> None:
        """A case goes on with another task."""
        self.admission.release(case.task)
        case.next_task(task.id)
        case.asked = None
        self.changed(case)
        self.plan.new_task(task)
        self.admission.reserve(case, self.clock())

    def changed(self, case: Case) -> None:
        """A case is not as it was."""
        self.cases.put(case)
        self.plan.cases[case.root] = case

    def end_case(self, case: Case, result: Result) -> None:
        """A case is over: people are told, and its events are completed."""
        self.plan.drafts += self.speaker.ended(case, self.notify(case), result)
        outcome = None if result.status in ("success", "skipped") else "failed"
        self.plan.done.update(dict.fromkeys(case.events, outcome))
        self.plan.cases[case.root] = None
        self.cases.close(case.root)
        self.admission.release(case.task)

    def notify(self, case: Case) -> str:
        """What people are told of a case."""
        general = self.generals.by_name.get(case.general)
        return "all" if general is None else general.manifest.notify

    def hindrance(self, event: Mapping[str, Any], name: str) -> str | None:
        """Why a general may not be given an event; None when it may."""
        general = self.generals.by_name.get(name)
        verdict = self.trust.judge(people_of(event))
        return self.trust.hindrance(verdict, name, None if general is None else general.manifest)

    def permitted(self, event: Mapping[str, Any], former: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a task for an event may use, as it stands in the task; nothing where nothing was decided.

        ``former`` is the task it goes on with: what that may not use, this one may not either.
        """
        permit = self.trust.judge(people_of(event)).permit if self.trust.config.decides else None
        before = None if former is None else permit_of(former)
        if before is not None:
            permit = before if permit is None else before.lowered(permit)
        return {} if permit is None else {FIELD: permit.document()}

    async def task_document(self, task_id: str) -> dict[str, Any] | None:
        """A task as it lies in the queue, finished or not; None when it is not known."""
        try:
            record = await self.bus.find(task_id)
        except InvalidName:  # whoever named it may have written anything
            return None
        if record is None or record.stream != TASKS:
            return None
        return dict(record.envelope.payload)

    async def cause_document(self, case: Case) -> dict[str, Any] | None:
        """What a task of this case would say, from the event it began with: finished tasks are cleaned away in time."""
        record = await self.bus.find(case.root)
        if record is None or record.stream != EVENTS:
            return None
        event = record.envelope.payload
        found = {"payload": storable(event.get("payload") or {}), **self.permitted(event)}
        return found if event.get("repo") is None else {**found, "repo": storable(event["repo"])}

    def same_task(self, document: dict[str, Any], task_id: str, root: str) -> Task:
        """Another task with the same to do, for the case that began with ``root``."""
        new = {"id": task_id, "created_at": moment_of(self.clock()), "status": "pending", "case": root}
        again = {**document, **new}
        return Task.model_validate(again)
