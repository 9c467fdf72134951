"""Handle results and questions of tasks, and restore the state of cases after a restart or a failed tick."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.base.forms import problem_text
from kingdom.base.text import storable
from kingdom.base.times import epoch_seconds, utc_datetime
from kingdom.court.cancellations import NOTE_FIELD
from kingdom.court.king.cases import Case, PendingQuestion, title_of
from kingdom.court.king.write_ahead_log import LogContents
from kingdom.court.machines.exchange import reported_result
from kingdom.court.models import (
    DETECTED_BY,
    EVENT_FIELDS,
    USER_NAME_FIELD,
    Event,
    Question,
    Result,
    Task,
    subject_of,
)
from kingdom.court.pull_requests import topic_of
from kingdom.court.queues import MAX_DOCUMENT_BYTES, TASKS, all_documents
from kingdom.journal.catalog import EventDispatched, TaskResumed

if TYPE_CHECKING:
    from kingdom.bus import Delivery
    from kingdom.court.king.state import KingState
    from kingdom.court.loop import Services
    from kingdom.court.models import ResultStatus

MAX_RESULTS_PER_TICK: Final = 500
_MAX_LOST_CHECKS_PER_TICK: Final = 50
_MAX_ERROR_CHARS: Final = 4000
_HOUR_SECONDS: Final = 3600.0
_ENDED_BY: Final = "ended_by"  # a field of results
log = logging.getLogger("kingdom.court.king")


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask_person(state: KingState, case: Case, result: Result) -> None:
    """Send a task's question to people. The case waits; its soldier has ended."""
    question, asked = record_question(state, case, result)
    state.changed(case)
    state.admission.release(case.task)
    state.plan.drafts.append(state.composer.question(case, question, asked.deadline))


def record_question(state: KingState, case: Case, result: Result) -> tuple[Question, PendingQuestion]:
    """Record in a case that it waits for an answer, and until when."""
    question = result.question
    if question is None or not question.text.strip():
        question = Question(text=result.summary or result.error or "The task needs a decision, but did not say which.")
    deadline = epoch_seconds(question.deadline)
    if deadline is None:
        deadline = result.ended_at.timestamp() + state.config.question.deadline_hours * _HOUR_SECONDS
    posted = epoch_seconds((result.model_extra or {}).get("asked_at"))
    case.asked = PendingQuestion(storable(question.text), storable(question.default), deadline, posted=posted)
    return question, case.asked


def check_deadlines(state: KingState, now: float) -> float | None:
    """Answer overdue questions with their default, or remind people; return the seconds until the next deadline."""
    nearest: float | None = None
    for case in state.cases.asking():
        asked = case.asked
        if asked is None or asked.reminded:
            continue
        if now < asked.deadline:
            nearest = min(asked.deadline - now, _HOUR_SECONDS if nearest is None else nearest)
            continue
        asked.reminded = True
        state.changed(case)
        if asked.default is None:
            state.plan.drafts.append(state.composer.reminder(case, asked.question))
        else:
            state.plan.events.append(_default_answer(case, asked, now))
    return nearest


async def resume_case(state: KingState, case: Case, delivery: Delivery, task_id: str) -> str | None:
    """Continue a case with a person's answer; return why that is impossible, or None.

    The new task carries the question and the answer.
    """
    original = await state.task_document(case.task) or await state.cause_document(case)
    if original is None or case.asked is None:
        return f"task {case.task} is no longer in the queue, so it cannot be resumed"
    answer = delivery.envelope.payload["payload"]
    text, user, name = answer.get("text"), answer.get("user"), answer.get(USER_NAME_FIELD)
    # Without the name of who asked for the task: the user is now who answers.
    before = {key: value for key, value in original.get("payload", {}).items() if key != USER_NAME_FIELD}
    task = Task.model_validate(
        {
            **original,
            "id": task_id,
            "event_id": delivery.event_id,
            "target_general": case.general,
            "type": "resume",
            "payload": {
                **before,
                "original_task_id": case.task,
                "question": case.asked.question,
                "answer": storable(text) if isinstance(text, str) else "",
                "user": storable(user) if isinstance(user, str) else "",
                **({USER_NAME_FIELD: storable(name)} if isinstance(name, str) else {}),
            },
            "priority": case.priority,
            "created_at": utc_datetime(state.clock()),
            "status": "pending",
            "case": case.root,
            "event": storable({name: delivery.envelope.payload.get(name) for name in EVENT_FIELDS}),
            **state.permitted(delivery.envelope.payload, original),
        }
    )
    former = case.task
    case.events.append(delivery.event_id)
    state.next_task(case, task)
    state.plan.note(EventDispatched(delivery.event_id, task.id, task.target_general))
    state.plan.note(TaskResumed(task.id, former))
    return None


def _default_answer(case: Case, asked: PendingQuestion, now: float) -> Event:
    made_by_king: dict[str, Any] = {DETECTED_BY: "king"}  # nothing was detected
    # The id is derived from the question, so the bus accepts the answer only once.
    return Event(
        id=f"evt-king-response-{case.task}-{int(asked.deadline)}",
        type="king.human_response",
        source="king",
        payload={"task_id": case.task, "text": asked.default, "user": "king (nobody answered in time)"},
        priority="high",
        created_at=utc_datetime(now),
        **made_by_king,
    )


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def collect_results(state: KingState) -> bool:
    """Read and apply new results; return whether there may be more."""
    read = 0
    for case in state.cases.active():
        result = read_result(state, case)
        if result is not None:
            if read == MAX_RESULTS_PER_TICK:
                return True
            read += 1
            await apply_result(state, case, result)
    return False


def read_result(state: KingState, case: Case) -> Result | None:
    """Return the result of a case's task, if there is one. An unreadable result counts as a failure."""
    path = state.home.result(case.task)
    try:
        if not os.path.lexists(path):
            return None
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            reason = f"its result in {path} has {size:,} bytes, {MAX_DOCUMENT_BYTES:,} are allowed"
            return failed_result(state, case, reason)
        # Not pydantic's own JSON parser: it refuses half a surrogate pair, which a good result may quote.
        result = Result.model_validate(storable(json.loads(path.read_bytes())))
    except OSError as error:
        return failed_result(state, case, f"its result cannot be read: {error}")
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, item['loc'])) or 'the file'}: {problem_text(item)}" for item in error.errors())
        return failed_result(state, case, f"its result in {path} is invalid: {'; '.join(problems)}")
    except (ValueError, RecursionError) as error:
        return failed_result(state, case, f"its result in {path} is invalid: {error}")
    if result.task_id != case.task:
        return failed_result(state, case, f"its result in {path} belongs to {result.task_id}")
    return result


async def apply_result(state: KingState, case: Case, result: Result) -> None:
    """End a case, ask its question, or run a killed task again."""
    if result.status == "needs_human":
        ask_person(state, case, result)
        return
    if result.status == "killed":
        if case.killed < state.config.retries.killed:
            document = await state.task_document(case.task)
            if document is not None:
                case.killed += 1
                state.next_task(case, state.same_task(document, state.task_ids.take(), case.root))
                if not case.scheduled:
                    state.plan.note(EventDispatched(case.root, case.task, case.general))
                return
        result = result.model_copy(update={"status": "failed", "error": _killed_error(case, result)})
        state.end_case(case, result, announced=False)  # the general left it to the king whether this is the end
        return
    state.end_case(case, result, announced=not ended_by_king(result))


def ended_by_king(result: Result) -> bool:
    """Whether the king wrote a result, because no general had the task, or its own could not be used."""
    return (result.model_extra or {}).get(_ENDED_BY) == "king"


def king_result(state: KingState, case: Case, status: ResultStatus, reason: str, note: str | None = None) -> Result:
    """Return a result for a case whose task has none, or none that is usable.

    ``note``: the reason to post for the requester when the case ends.
    """
    now, error = utc_datetime(state.clock()), reason[:_MAX_ERROR_CHARS]
    ended_by: dict[str, Any] = {_ENDED_BY: "king", **({} if note is None else {NOTE_FIELD: note})}
    return Result(
        task_id=case.task,
        general=case.general,
        status=status,
        error=error,
        started_at=now,
        ended_at=now,
        **ended_by,
    )


async def fail_lost_tasks(state: KingState, after: str) -> str:
    """End some cases whose task is in no queue any more, starting after ``after``; return where to continue.

    A task that was deleted by hand, or set aside as invalid, never gets a result.
    """
    planned = {task.id for task in state.plan.tasks}  # created in this tick, and published at its end
    cases = sorted((case for case in state.cases.active() if case.task not in planned), key=lambda case: case.task)
    some = [case for case in cases if case.task > after][:_MAX_LOST_CHECKS_PER_TICK]
    for case in some:
        record = await state.bus.find(case.task)
        if record is not None and record.status in ("PENDING", "PROCESSING"):
            continue
        if state.home.result(case.task).exists() or await reported_result(state.bus, case.task) is not None:
            continue  # it ended just now, or on another machine whose report is on its way
        if record is None:
            why = "it is no longer in a queue"
        elif record.status == "DEAD":
            why = f"it was set aside: {record.error_message or record.error_code}"
        else:
            why = "it ended without a result"
        lost = failed_result(state, case, f"task {case.task} is lost: {why}")
        state.end_case(case, lost, announced=False)
    return some[-1].task if len(some) == _MAX_LOST_CHECKS_PER_TICK else ""


def failed_result(state: KingState, case: Case, reason: str) -> Result:
    """Return a failed result for a case whose task has none, or none that is usable."""
    return king_result(state, case, "failed", reason)


def _killed_error(case: Case, result: Result) -> str:
    times = f"its soldier was killed {case.killed + 1} times" if case.killed else "its soldier was killed"
    return f"{times}: {result.error}" if result.error else times


# ── recovery ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def release_held_tasks(state: KingState, lease: float) -> None:
    """Settle or release the tasks that a former process had claimed to cancel them.

    A task with a result has ended. One without goes back to its queue: its cancel command is still pending.
    """
    held = await state.bus.recall(TASKS, worker="king", lease=lease)
    ended = [delivery for delivery in held if state.home.result(delivery.event_id).exists()]
    await state.bus.settle(done=[(delivery, "cancelled") for delivery in ended])
    await state.bus.release([delivery for delivery in held if delivery not in ended])


async def release_unknown_events(state: KingState, held: dict[str, Delivery]) -> None:
    """Release events that were claimed but belong to no case."""
    known = {event_id for case in state.cases for event_id in case.events}
    unknown = [delivery for event_id, delivery in held.items() if event_id not in known]
    await state.bus.release(unknown)
    for delivery in unknown:
        del held[delivery.event_id]


def drop_finished_cases(state: KingState, held: dict[str, Delivery]) -> None:
    """Close cases whose events are all completed. Cases of schedules have no events, and end with their result."""
    for case in state.cases:
        if not case.scheduled and not any(event_id in held for event_id in case.events):
            state.cases.close(case.root)


async def rebuild_cases(services: Services, state: KingState, held: dict[str, Delivery]) -> LogContents:
    """Rebuild the cases of dispatched events from the tasks in the queue, when the log file is lost.

    Cases of schedules cannot be rebuilt; the results of their tasks stay unread.
    """
    tasks: dict[str, list[Task]] = {}
    for stored in await all_documents(services, (TASKS,)):
        root = stored.document.get("case", stored.document.get("event_id"))
        if isinstance(root, str) and root in held and stored.document.get("type") != "cancel":
            try:
                tasks.setdefault(root, []).append(Task.model_validate(stored.document))
            except ValidationError:
                log.warning("skipped the invalid task %s", stored.id)
    cases = {root: _rebuild_case(state, root, held, sorted(found, key=task_order)) for root, found in tasks.items()}
    if held:
        log.warning("the king's log is lost: rebuilt the cases of %d of %d events", len(cases), len(held))
    return LogContents(cases, None, found=False)


def task_order(task: Task) -> tuple[str, int]:
    """Return the key by which tasks are in the order in which they were created."""
    _, day, number = task.id.split("-")
    return day, int(number)


def _rebuild_case(state: KingState, root: str, held: dict[str, Delivery], tasks: list[Task]) -> Case:
    first, last = tasks[0], tasks[-1]
    document: dict[str, Any] = first.document()
    subject = subject_of(document)
    case = Case(
        root=root,
        task=last.id,
        general=last.target_general,
        type=first.type,
        priority=last.priority,
        title=title_of(document, subject),
        thread=first.id,
        subject=subject,
        topic=topic_of(last.document(), subject),
        events=[
            root,
            *dict.fromkeys(task.event_id for task in tasks if task.event_id in held and task.event_id != root),
        ],
        former=[task.id for task in tasks[:-1]],
    )
    result = read_result(state, case)
    if result is not None and result.status == "needs_human":
        record_question(state, case, result)  # people got the question before the log was lost
    return case
