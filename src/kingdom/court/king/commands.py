"""What people ask of the king: answer a question, cancel a task, try one again.

Each is an event. ``decide_…`` says, before the event is claimed, what will be done for it: a :data:`Job` to run once it
is claimed. It raises :class:`~kingdom.court.king.admission.Held` when it must wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from kingdom.court.files import read_json, write_atomic
from kingdom.court.king.cases import Case
from kingdom.court.king.messages import title_of
from kingdom.court.king.questions import resume
from kingdom.court.king.results import failure
from kingdom.court.king.times import moment_of
from kingdom.court.models import Result, Task
from kingdom.court.queues import TASKS
from kingdom.court.subjects import subject_of

if TYPE_CHECKING:
    from kingdom.bus import Delivery
    from kingdom.court.king.desk import Desk
    from kingdom.court.king.waiting import Waiting

Job = Callable[["Delivery"], Awaitable[None]]
_CLAIM_SECONDS: Final = 60.0


def discard(desk: Desk, waiting: Waiting, reason: str) -> Job:
    """Complete the event without doing anything."""

    async def job(delivery: Delivery) -> None:
        desk.plan.discard(delivery.event_id, waiting.type, reason)

    return job


async def decide_answer(desk: Desk, waiting: Waiting) -> tuple[Job, str | None]:
    """What to do for an answer, and the id of the task that it leads to."""
    case = None if waiting.task is None else desk.cases.of_task(waiting.task)
    if case is None:
        return discard(desk, waiting, await _why_unknown(desk, waiting, "does not wait for an answer")), None
    if case.task != waiting.task or case.asked is None:
        asked = waiting.task in case.former
        return discard(desk, waiting, "already answered" if asked else f"task {waiting.task} asks nothing"), None
    task_id = desk.admission.admit(case.general, case.priority)

    async def job(delivery: Delivery) -> None:
        if case.asked is None:  # another answer, taken up in the same look, was first
            desk.admission.forgo(task_id)
            desk.plan.discard(delivery.event_id, waiting.type, "already answered")
        elif problem := await resume(desk, case, delivery, task_id):
            desk.admission.forgo(task_id)
            case.events.append(delivery.event_id)
            desk.end_case(case, failure(desk, case, problem))

    return job, task_id


async def decide_retry(desk: Desk, waiting: Waiting) -> tuple[Job, str | None]:
    """What to do for a task that shall be tried again, and the id of the new one."""
    case = None if waiting.task is None else desk.cases.of_task(waiting.task)
    if case is not None:
        state = "waits for an answer" if case.asked else "is still under way"
        return discard(desk, waiting, f"task {waiting.task} {state} (as {case.task})"), None
    document = None if waiting.task is None else await desk.task_document(waiting.task)
    if document is None:
        return discard(desk, waiting, await _why_unknown(desk, waiting, "is not known")), None
    try:
        former = Task.model_validate(document)
    except ValidationError as error:
        return discard(desk, waiting, f"task {waiting.task} is not valid: {error.error_count()} problems"), None
    subject = subject_of(document)
    task_id = desk.admission.admit(former.target_general, former.priority, subject)

    async def job(delivery: Delivery) -> None:
        new = Case(
            root=delivery.event_id,
            task=task_id,
            general=former.target_general,
            type=former.type,
            priority=former.priority,
            title=title_of(document, subject),
            thread=task_id,
            subject=subject,
            events=[delivery.event_id],
        )
        desk.open_case(new, desk.same_task(document, task_id, delivery.event_id))

    return job, task_id


async def decide_cancel(desk: Desk, waiting: Waiting, user: str) -> Job:
    """What to do for a task that shall be ended: what waits ends here, what runs is ended by its general."""
    case = None if waiting.task is None else desk.cases.of_task(waiting.task)
    reason = desk.speaker.cancelled(user)
    if case is None:
        if await _ended_as(desk, waiting, reason):
            return _complete(desk)  # by this very command, before a restart
        return discard(desk, waiting, await _why_unknown(desk, waiting, "has ended already"))
    if case.asked is None and await end_waiting_task(desk, case.task, case.general, reason):
        return _complete(desk)

    async def job(delivery: Delivery) -> None:
        desk.plan.done[delivery.event_id] = None
        if case.asked is not None:
            desk.end_case(case, failure(desk, case, reason))
            return
        task = Task(
            id=desk.task_ids.take(),
            event_id=delivery.event_id,
            target_general=case.general,
            type="cancel",
            payload={"task_id": case.task, "reason": reason},
            priority="high",
            created_at=moment_of(desk.clock()),
        )
        desk.plan.new_task(task)

    return job


async def end_waiting_task(desk: Desk, task_id: str, general: str, reason: str) -> bool:
    """Take a task out of its queue before its general does, and report it as failed; False when it is too late."""
    claimed = await desk.bus.claim(TASKS, worker="king", ids=[task_id], lease=_CLAIM_SECONDS)
    for delivery in claimed:
        now = moment_of(desk.clock())
        result = Result(task_id=task_id, general=general, status="failed", error=reason, started_at=now, ended_at=now)
        write_atomic(desk.home.result(task_id), result.model_dump_json(indent=2) + "\n")  # first, as generals do
        await desk.bus.settle(done=[(delivery, "failed")])
        desk.look_again = True
    return bool(claimed)


def _complete(desk: Desk) -> Job:
    async def job(delivery: Delivery) -> None:
        desk.plan.done[delivery.event_id] = None

    return job


async def _ended_as(desk: Desk, waiting: Waiting, reason: str) -> bool:
    if waiting.task is None or await desk.task_document(waiting.task) is None:
        return False
    result = read_json(desk.home.result(waiting.task))
    return isinstance(result, dict) and result.get("error") == reason


async def _why_unknown(desk: Desk, waiting: Waiting, otherwise: str) -> str:
    if waiting.task is None:
        return "its payload names no task_id"
    known = await desk.task_document(waiting.task) is not None
    return f"task {waiting.task[:80]} {otherwise}" if known else f"task {waiting.task[:80]} is not known"
