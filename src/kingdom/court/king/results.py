"""Handle results and questions of tasks, and rebuild cases after a restart."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.base.text import storable
from kingdom.base.times import epoch_seconds, utc_datetime
from kingdom.court.king.cases import Case, PendingQuestion, title_of
from kingdom.court.king.write_ahead_log import LogContents
from kingdom.court.models import Event, Question, Result, Task, subject_of
from kingdom.court.queues import MAX_DOCUMENT_BYTES, TASKS, all_documents
from kingdom.journal.catalog import EventDispatched, TaskResumed

if TYPE_CHECKING:
    from kingdom.bus import Delivery
    from kingdom.court.king.state import KingState
    from kingdom.court.loop import Services


# Questions to people: asked, reminded of, answered. The first answer counts.


_HOUR_SECONDS: Final = 3600.0


def ask_person(state: KingState, case: Case, result: Result) -> None:
    """Ask a person what a task wants to know. The case waits; its soldier does not."""
    question, asked = record_question(state, case, result)
    state.changed(case)
    state.admission.release(case.task)
    state.plan.drafts.append(state.composer.question(case, question, asked.deadline))


def record_question(state: KingState, case: Case, result: Result) -> tuple[Question, PendingQuestion]:
    """Note in a case that it waits for an answer, and until when."""
    question = result.question
    if question is None or not question.text.strip():
        question = Question(text=result.summary or result.error or "The task needs a decision, but did not say which.")
    deadline = epoch_seconds(question.deadline)
    if deadline is None:
        deadline = result.ended_at.timestamp() + state.config.question.deadline_hours * _HOUR_SECONDS
    case.asked = PendingQuestion(storable(question.text), storable(question.default), deadline)
    return question, case.asked


def check_deadlines(state: KingState, now: float) -> float | None:
    """Do what is due for questions nobody answered; return the seconds until the next deadline, if there is one."""
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
    """Go on with a case by a person's answer, as a task that knows both; return why that is impossible, if it is."""
    original = await state.task_document(case.task) or await state.cause_document(case)
    if original is None or case.asked is None:
        return f"task {case.task} is not in the queue any more, so there is nothing to go on with"
    answer = delivery.envelope.payload["payload"]
    text, user = answer.get("text"), answer.get("user")
    task = Task.model_validate(
        {
            **original,
            "id": task_id,
            "event_id": delivery.event_id,
            "target_general": case.general,
            "type": "resume",
            "payload": {
                **original.get("payload", {}),
                "original_task_id": case.task,
                "question": case.asked.question,
                "answer": storable(text) if isinstance(text, str) else "",
                "user": storable(user) if isinstance(user, str) else "",
            },
            "priority": case.priority,
            "created_at": utc_datetime(state.clock()),
            "status": "pending",
            "case": case.root,
            **state.permitted(delivery.envelope.payload, original),
        }
    )
    former = case.task
    case.events.append(delivery.event_id)
    state.next_task(case, task)
    state.plan.journal += [
        EventDispatched(delivery.event_id, task.id, task.target_general),
        TaskResumed(task.id, former),
    ]
    return None


def _default_answer(case: Case, asked: PendingQuestion, now: float) -> Event:
    # The id follows from the question: it comes into the queue once, however often we come by here.
    return Event(
        id=f"evt-king-response-{case.task}-{int(asked.deadline)}",
        type="king.human_response",
        source="king",
        payload={"task_id": case.task, "text": asked.default, "user": "king (nobody answered in time)"},
        priority="high",
        created_at=utc_datetime(now),
    )


# What generals report: read, told to people, and the events completed.


MAX_RESULTS_PER_TICK: Final = 500
_MAX_LOST_CHECKS_PER_TICK: Final = 50


async def collect_results(state: KingState) -> bool:
    """Read the results that are there; return whether there may be more."""
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
    """The result of a case's task, if there is one. One that cannot be read is a failure: nobody will mend it."""
    path = state.home.result(case.task)
    try:
        if not os.path.lexists(path):
            return None
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            return failed_result(
                state, case, f"its result in {path} has {size:,} bytes, {MAX_DOCUMENT_BYTES:,} are allowed"
            )
        # Not by pydantic's own parser, which refuses half a surrogate pair: a good result may quote a bad text.
        result = Result.model_validate(storable(json.loads(path.read_bytes())))
    except OSError as error:
        return failed_result(state, case, f"its result cannot be read: {error}")
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}" for item in error.errors())
        return failed_result(state, case, f"its result in {path} makes no sense: {'; '.join(problems)}")
    except (ValueError, RecursionError) as error:
        return failed_result(state, case, f"its result in {path} makes no sense: {error}")
    if result.task_id != case.task:
        return failed_result(state, case, f"its result in {path} is that of {result.task_id}")
    return result


async def apply_result(state: KingState, case: Case, result: Result) -> None:
    """Go on with a case by what came of its task."""
    if result.status == "needs_human":
        ask_person(state, case, result)
        return
    if result.status == "killed":
        if case.killed < state.config.retries.killed:
            document = await state.task_document(case.task)
            if document is not None:
                case.killed += 1
                state.next_task(case, state.same_task(document, state.task_ids.take(), case.root))
                return
        result = result.model_copy(update={"status": "failed", "error": _killed_error(case, result)})
    state.end_case(case, result)


async def fail_lost_tasks(state: KingState, after: str) -> str:
    """Look whether the tasks of some cases are still there, beginning after ``after``; return where to go on.

    A task that was deleted by hand, or was set aside as invalid, gets no result from anybody.
    """
    planned = {task.id for task in state.plan.tasks}  # made in this very look, and in the queue at its end only
    cases = sorted((case for case in state.cases.active() if case.task not in planned), key=lambda case: case.task)
    some = [case for case in cases if case.task > after][:_MAX_LOST_CHECKS_PER_TICK]
    for case in some:
        record = await state.bus.find(case.task)
        if record is not None and record.status in ("PENDING", "PROCESSING"):
            continue
        if state.home.result(case.task).exists():
            continue  # it ended just now
        if record is None:
            why = "it is in no queue any more"
        elif record.status == "DEAD":
            why = f"it was set aside: {record.error_message or record.error_code}"
        else:
            why = "it ended without a result"
        state.end_case(case, failed_result(state, case, f"task {case.task} is lost: {why}"))
    return some[-1].task if len(some) == _MAX_LOST_CHECKS_PER_TICK else ""


def failed_result(state: KingState, case: Case, reason: str) -> Result:
    """A result that says why there is no better one."""
    now = utc_datetime(state.clock())
    return Result(
        task_id=case.task, general=case.general, status="failed", error=reason[:4000], started_at=now, ended_at=now
    )


def _killed_error(case: Case, result: Result) -> str:
    times = f"its soldier was killed {case.killed + 1} times" if case.killed else "its soldier was killed"
    return f"{times}: {result.error}" if result.error else times


# Finding one's way after a restart, or after a look that failed half-way.


log = logging.getLogger("kingdom.court.king")


async def release_held_tasks(state: KingState, lease: float) -> None:
    """Let go of tasks that a former king had taken out of their queue to end them.

    With a result they have ended. Without one they go back: whoever wanted them cancelled still waits to be heard.
    """
    held = await state.bus.recall(TASKS, worker="king", lease=lease)
    ended = [delivery for delivery in held if state.home.result(delivery.event_id).exists()]
    await state.bus.settle(done=[(delivery, "failed") for delivery in ended])
    await state.bus.release([delivery for delivery in held if delivery not in ended])


async def release_unknown_events(state: KingState, held: dict[str, Delivery]) -> None:
    """Put events back that were claimed, but for which nothing was begun."""
    known = {event_id for case in state.cases for event_id in case.events}
    unknown = [delivery for event_id, delivery in held.items() if event_id not in known]
    await state.bus.release(unknown)
    for delivery in unknown:
        del held[delivery.event_id]


def drop_finished_cases(state: KingState, held: dict[str, Delivery]) -> None:
    """Forget cases whose events are all completed; those of schedules have none, and end by their result."""
    for case in state.cases:
        if not case.scheduled and not any(event_id in held for event_id in case.events):
            state.cases.close(case.root)


async def rebuild_cases(services: Services, state: KingState, held: dict[str, Delivery]) -> LogContents:
    """Make up for a book that was lost: the cases of the events in hand, from the tasks that lie in the queue.

    Tasks of schedules that ran meanwhile are not found again; their results stay where they are.
    """
    tasks: dict[str, list[Task]] = {}
    for stored in await all_documents(services, (TASKS,)):
        root = stored.document.get("case", stored.document.get("event_id"))
        if isinstance(root, str) and root in held and stored.document.get("type") != "cancel":
            try:
                tasks.setdefault(root, []).append(Task.model_validate(stored.document))
            except ValidationError:
                log.warning("task %s is not valid and is left out", stored.id)
    cases = {root: _rebuild_case(state, root, held, sorted(found, key=_task_order)) for root, found in tasks.items()}
    if held:
        log.warning("the king's book is lost: %d of %d events in hand were found again", len(cases), len(held))
    return LogContents(cases, None, found=False)


def _task_order(task: Task) -> tuple[str, int]:
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
        events=[
            root,
            *dict.fromkeys(task.event_id for task in tasks if task.event_id in held and task.event_id != root),
        ],
        former=[task.id for task in tasks[:-1]],
    )
    result = read_result(state, case)
    if result is not None and result.status == "needs_human":
        record_question(state, case, result)  # it was asked when the book was still there
    return case
