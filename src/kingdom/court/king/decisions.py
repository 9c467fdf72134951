"""Decide what to do for one event: dispatch it to a general, or carry out a person's command.

Commands are events, too: answer a question, cancel a task, retry one. A ``decide_…`` function runs before the event is
claimed and returns the :data:`EventAction` to run once it is. It raises
:class:`~kingdom.court.king.admission.NotAdmitted` when the event must wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.agents.untrusted import cut_middle
from kingdom.base.files import read_object, write_json
from kingdom.base.text import storable
from kingdom.base.times import epoch_seconds, utc_datetime
from kingdom.court.errors import InvalidDocument
from kingdom.court.king.admission import NotAdmitted
from kingdom.court.king.cases import Case, title_of
from kingdom.court.king.results import failed_result, king_result, read_result, resume_case
from kingdom.court.models import DETECTED_BY, EVENT_FIELDS, Event, Task, comment_text, subject_of
from kingdom.court.pull_requests import is_about_work, topic_of
from kingdom.court.questions import asked_later
from kingdom.court.queues import TASKS, parse_document
from kingdom.journal.catalog import EventDispatched

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kingdom.bus import Delivery
    from kingdom.court.king.admission import AdmittedEvent
    from kingdom.court.king.pending import PendingEvent
    from kingdom.court.king.state import KingState

EventAction = Callable[["Delivery"], Awaitable[None]]
_CLAIM_SECONDS: Final = 60.0
_JOINED_FIELDS: Final = (
    "action",
    "actor",
    "comment",
    "review_state",
    "line_comments",
    "check",
    "head_sha",
    "text",
    "user",
)
_MAX_JOINED_BYTES: Final = 8_000  # of each text
_MAX_JOINED_LINES: Final = 20


def discard_event(state: KingState, pending: PendingEvent, reason: str) -> EventAction:
    """Complete an event without a task."""

    async def action(delivery: Delivery) -> None:
        state.plan.discard(delivery.event_id, pending.type, reason)

    return action


async def decide_answer(state: KingState, pending: PendingEvent) -> tuple[EventAction, str | None]:
    """Handle an answer; also return the id of the task that continues the case."""
    case = None if pending.task is None else state.cases.of_task(pending.task)
    if case is None:
        reason = await _unknown_task_reason(state, pending, "does not wait for an answer")
        return discard_event(state, pending, reason), None
    if case.task == pending.task and case.asked is None:
        result = read_result(state, case)
        if result is not None and result.status == "needs_human":
            raise NotAdmitted("its question is being read")
    if case.task != pending.task or case.asked is None:
        answered = pending.task in case.former
        reason = "already answered" if answered else f"task {pending.task} asks nothing"
        return discard_event(state, pending, reason), None
    task_id = state.admission.admit(case.general, case.priority, case.subject, continues=case.root)

    async def action(delivery: Delivery) -> None:
        if case.asked is None:  # an earlier answer was handled in the same tick
            state.admission.withdraw(task_id)
            state.plan.discard(delivery.event_id, pending.type, "already answered")
        elif problem := await resume_case(state, case, delivery, task_id):
            state.admission.withdraw(task_id)
            case.events.append(delivery.event_id)
            state.end_case(case, failed_result(state, case, problem), announced=False)

    return action, task_id


def posted_at(state: KingState, case: Case) -> float | None:
    """Return since when a comment on its subject answers the question of a case; None while it does not."""
    if case.asked is None or case.asked.answered:
        return None
    return case.asked.posted or asked_later(state.home, case.task)


def answer_from_comment(state: KingState, case: Case) -> EventAction:
    """Make an event with a comment the answer to a question: a command like those of other channels."""

    async def action(delivery: Delivery) -> None:
        document = delivery.envelope.payload
        state.plan.done[delivery.event_id] = None
        state.plan.note(EventDispatched(delivery.event_id, case.task, case.general))
        if case.asked is None:  # another answer came in the same tick
            return
        case.asked.answered = True
        state.changed(case)
        state.plan.events.append(_response(document, case.task, state.clock()))

    return action


def _response(document: Mapping[str, Any], task_id: str, now: float) -> Event:
    payload = document["payload"]
    user = payload.get("actor") or payload["comment"].get("author") or payload.get("author")
    source, number = str(document["source"]), str(document["id"]).rpartition("-")[2]
    # The rest of the payload says who it was: what they may ask for applies to the answer, too.
    said = {"task_id": task_id, "text": comment_text(payload), "user": user if isinstance(user, str) else source}
    made_by_king: dict[str, Any] = {DETECTED_BY: "king"}  # the comment was detected
    return Event(
        id=f"evt-{source}-response-{task_id}-{number}",
        type=f"{source}.human_response",
        source=source,
        repo=document.get("repo"),
        payload=storable({**payload, **said}),
        priority="high",
        created_at=utc_datetime(now),
        **made_by_king,
    )


async def decide_retry(state: KingState, pending: PendingEvent) -> tuple[EventAction, str | None]:
    """Handle a retry; also return the id of the new task."""
    case = None if pending.task is None else state.cases.of_task(pending.task)
    if case is not None:
        status = "waits for an answer" if case.asked else "is still under way"
        return discard_event(state, pending, f"task {pending.task} {status} (as {case.task})"), None
    document = None if pending.task is None else await state.task_document(pending.task)
    if document is None:
        return discard_event(state, pending, await _unknown_task_reason(state, pending, "is not known")), None
    try:
        former = Task.model_validate(document)
    except ValidationError as error:
        return discard_event(state, pending, f"task {pending.task} is not valid: {error.error_count()} problems"), None
    subject = subject_of(document)
    task_id = state.admission.admit(former.target_general, former.priority, subject)

    async def action(delivery: Delivery) -> None:
        new = Case(
            root=delivery.event_id,
            task=task_id,
            general=former.target_general,
            type=former.type,
            priority=former.priority,
            title=title_of(document, subject),
            thread=task_id,
            subject=subject,
            topic=topic_of(document, subject),
            events=[delivery.event_id],
        )
        state.open_case(new, state.same_task(document, task_id, delivery.event_id))

    return action, task_id


async def decide_cancel(state: KingState, pending: PendingEvent, user: str) -> EventAction:
    """Handle a cancellation. A waiting task ends here; its general ends a running one."""
    case = None if pending.task is None else state.cases.of_task(pending.task)
    reason, note = state.composer.cancelled(user, pending.note), pending.note
    if case is None:
        if former := await _cancelled_general(state, pending):
            return dispatch_cancel(state, str(pending.task), former)  # this command was handled before a restart
        return discard_event(state, pending, await _unknown_task_reason(state, pending, "has ended already"))
    if case.asked is None and await end_waiting_task(state, case, reason, note):
        return dispatch_cancel(state, case.task, case.general)

    async def action(delivery: Delivery) -> None:
        state.plan.done[delivery.event_id] = None
        state.plan.note(EventDispatched(delivery.event_id, case.task, case.general))
        _cancel_begun(state, case, reason, note)

    return action


async def cancel_overtaken(state: KingState, pending: PendingEvent, generals: AbstractSet[str]) -> list[Case]:
    """End the tasks of some generals about what an event ended, such as a closed issue; return their cases.

    May be repeated.

    What was asked for on an issue outlives the pull request that it goes on with: then there is another one.
    """
    about_work, ended = is_about_work(pending.type), []
    subjects = dict.fromkeys(one for one in (pending.subject, pending.led_to) if one is not None)
    for case in [case for subject in subjects for case in state.cases.of_subject(subject)]:
        if case.general not in generals or is_about_work(case.type) != about_work:
            continue
        if pending.at < await _caused_at(state, case):
            continue
        reason = state.composer.overtaken(pending.type, str(pending.subject), pending.author or pending.type)
        if case.asked is not None or not await end_waiting_task(state, case, reason):
            _cancel_begun(state, case, reason)
        ended.append(case)
    return ended


async def _caused_at(state: KingState, case: Case) -> float:
    """Return when the event of a case happened, 0 if that is not known: the king may have read it much later."""
    document = await state.task_document(case.task) or {}
    cause = document.get("event")
    return epoch_seconds(cause.get("created_at") if isinstance(cause, dict) else None) or 0.0


def _cancel_begun(state: KingState, case: Case, reason: str, note: str | None = None) -> None:
    """Cancel a task that its general has, or end a case that waits for an answer."""
    if case.asked is None:
        state.plan.cancels[case.task] = case.general, reason, note
    elif state.cases.get(case.root) is case:  # nothing else in this tick has ended it
        state.end_case(case, king_result(state, case, "cancelled", reason, note), announced=False)


async def end_waiting_task(state: KingState, case: Case, reason: str, note: str | None = None) -> bool:
    """Claim a task before its general does, and store its result; return False when it is too late.

    ``note``: see :class:`~kingdom.court.cancellations.CancelRequest`.
    """
    claimed = await state.bus.claim(TASKS, worker="king", ids=[case.task], lease=_CLAIM_SECONDS)
    for delivery in claimed:
        result = king_result(state, case, "cancelled", reason, note)
        write_json(state.home.result(case.task), result.document())  # before settling, as generals do
        await state.bus.settle(done=[(delivery, "cancelled")])
        state.tick_again = True
    return bool(claimed)


def dispatch_cancel(state: KingState, task_id: str, general: str) -> EventAction:
    """Complete an event that ended a task."""

    async def action(delivery: Delivery) -> None:
        state.plan.done[delivery.event_id] = None
        state.plan.note(EventDispatched(delivery.event_id, task_id, general))

    return action


async def _cancelled_general(state: KingState, pending: PendingEvent) -> str | None:
    """Return the general of a task that was cancelled; None when it ended otherwise, or is unknown."""
    if pending.task is None or await state.task_document(pending.task) is None:
        return None
    result = read_object(state.home.result(pending.task))
    return str(result.get("general")) if result.get("status") == "cancelled" else None


async def _unknown_task_reason(state: KingState, pending: PendingEvent, otherwise: str) -> str:
    if pending.task is None:
        return "its payload names no task_id"
    known = await state.task_document(pending.task) is not None
    return f"task {pending.task[:80]} {otherwise}" if known else f"task {pending.task[:80]} is not known"


def join_event(state: KingState, root: str) -> EventAction:
    """Let an event join another one that is dispatched in the same tick, after it."""

    async def action(delivery: Delivery) -> None:
        state.plan.joined.setdefault(root, []).append(delivery.envelope.payload)

    return action


def _joined_payload(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event that joins another one's task adds to its payload."""
    payload = document.get("payload")
    found = payload if isinstance(payload, dict) else {}
    said = {name: found[name] for name in _JOINED_FIELDS if name in found}
    if isinstance(lines := said.get("line_comments"), list):
        said["line_comments"] = lines[:_MAX_JOINED_LINES]
    return {"type": document.get("type"), **_cut_texts(said)}


def _cut_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut_texts(item) for item in value]
    return cut_middle(value, _MAX_JOINED_BYTES) if isinstance(value, str) else value


def dispatch_event(state: KingState, delivery: Delivery, chosen: AdmittedEvent) -> None:
    """Create the task of a claimed event."""
    document = delivery.envelope.payload
    try:
        event = parse_document(Event, document, delivery.event_id)
    except InvalidDocument as error:  # it was changed after it was read
        state.plan.invalid[delivery.event_id] = str(error)
        state.admission.withdraw(chosen.task_id)
        return
    if reason := state.denial_reason(document, chosen.general):  # likewise
        state.plan.discard(event.id, event.type, reason)
        state.admission.withdraw(chosen.task_id)
        return
    subject, joined = subject_of(document), state.plan.joined.get(event.id, [])
    case = Case(
        root=event.id,
        task=chosen.task_id,
        general=chosen.general,
        type=event.type,
        priority=chosen.priority,
        title=title_of(document, subject),
        thread=chosen.task_id,
        subject=chosen.pending.led_to or subject,
        topic=chosen.pending.topic,
        events=[event.id, *(str(one["id"]) for one in joined)],
    )
    further = {"further": [_joined_payload(one) for one in joined]} if joined else {}
    task = Task.model_validate(
        {
            "id": chosen.task_id,
            "event_id": event.id,
            "target_general": chosen.general,
            "type": event.type,
            "payload": storable({**event.payload, **further}),
            "priority": chosen.priority,
            "created_at": utc_datetime(state.clock()),
            # A copy, so that the general need not look the event up: with many tasks that would be most of its work.
            "event": storable({name: document.get(name) for name in EVENT_FIELDS}),
            **state.permitted(document),
            **state.follow_up(chosen.pending, chosen.general),
            **({} if event.repo is None else {"repo": storable(event.repo)}),
        }
    )
    state.open_case(case, task)
    for event_id in case.events[1:]:
        state.plan.note(EventDispatched(event_id, task.id, task.target_general))
