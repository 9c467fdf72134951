"""Questions to people: asked, reminded of, answered. The first answer counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.court.king.cases import Asked
from kingdom.court.king.cleaning import storable
from kingdom.court.king.times import moment_of, seconds_of
from kingdom.court.models import Event, Question, Task
from kingdom.journal.catalog import EventDispatched, TaskResumed

if TYPE_CHECKING:
    from kingdom.bus import Delivery
    from kingdom.court.king.cases import Case
    from kingdom.court.king.desk import Desk
    from kingdom.court.models import Result

_HOUR: Final = 3600.0


def ask(desk: Desk, case: Case, result: Result) -> None:
    """Ask a person what a task wants to know. The case waits; its soldier does not."""
    question, asked = note_question(desk, case, result)
    desk.changed(case)
    desk.admission.release(case.task)
    desk.plan.drafts.append(desk.speaker.question(case, question, asked.deadline))


def note_question(desk: Desk, case: Case, result: Result) -> tuple[Question, Asked]:
    """Note in a case that it waits for an answer, and until when."""
    question = result.question
    if question is None or not question.text.strip():
        question = Question(text=result.summary or result.error or "The task needs a decision, but did not say which.")
    deadline = seconds_of(question.deadline)
    if deadline is None:
        deadline = result.ended_at.timestamp() + desk.config.question.deadline_hours * _HOUR
    case.asked = Asked(storable(question.text), storable(question.default), deadline)
    return question, case.asked


def look_at_deadlines(desk: Desk, now: float) -> float | None:
    """Do what is due for questions nobody answered; return the seconds until the next deadline, if there is one."""
    nearest: float | None = None
    for case in desk.cases.asking():
        asked = case.asked
        if asked is None or asked.reminded:
            continue
        if now < asked.deadline:
            nearest = min(asked.deadline - now, _HOUR if nearest is None else nearest)
            continue
        asked.reminded = True
        desk.changed(case)
        if asked.default is None:
            desk.plan.drafts.append(desk.speaker.reminder(case, asked.question))
        else:
            desk.plan.events.append(_default_answer(case, asked, now))
    return nearest


async def resume(desk: Desk, case: Case, delivery: Delivery, task_id: str) -> str | None:
    """Go on with a case by a person's answer, as a task that knows both; return why that is impossible, if it is."""
    original = await desk.task_document(case.task) or await desk.cause_document(case)
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
            "created_at": moment_of(desk.clock()),
            "status": "pending",
            "case": case.root,
            **desk.permitted(delivery.envelope.payload, original),
        }
    )
    former = case.task
    case.events.append(delivery.event_id)
    desk.next_task(case, task)
    desk.plan.journal += [
        EventDispatched(delivery.event_id, task.id, task.target_general),
        TaskResumed(task.id, former),
    ]
    return None


def _default_answer(case: Case, asked: Asked, now: float) -> Event:
    # The id follows from the question: it comes into the queue once, however often we come by here.
    return Event(
        id=f"evt-king-response-{case.task}-{int(asked.deadline)}",
        type="king.human_response",
        source="king",
        payload={"task_id": case.task, "text": asked.default, "user": "king (nobody answered in time)"},
        priority="high",
        created_at=moment_of(now),
    )
