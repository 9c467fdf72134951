"""Finding one's way after a restart, or after a look that failed half-way."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kingdom.court.documents import all_documents
from kingdom.court.king.book import Opened
from kingdom.court.king.cases import Case
from kingdom.court.king.messages import title_of
from kingdom.court.king.questions import note_question
from kingdom.court.king.results import read_result
from kingdom.court.models import Task
from kingdom.court.queues import TASKS
from kingdom.court.subjects import subject_of

if TYPE_CHECKING:
    from kingdom.bus import Delivery
    from kingdom.court.king.desk import Desk
    from kingdom.court.loop import Services

log = logging.getLogger("kingdom.court.king")


async def let_go_of_tasks(desk: Desk, lease: float) -> None:
    """Let go of tasks that a former king had taken out of their queue to end them.

    With a result they have ended. Without one they go back: whoever wanted them cancelled still waits to be heard.
    """
    held = await desk.bus.recall(TASKS, worker="king", lease=lease)
    ended = [delivery for delivery in held if desk.home.result(delivery.event_id).exists()]
    await desk.bus.settle(done=[(delivery, "failed") for delivery in ended])
    await desk.bus.release([delivery for delivery in held if delivery not in ended])


async def give_back_unknown(desk: Desk, held: dict[str, Delivery]) -> None:
    """Put events back that were claimed, but for which nothing was begun."""
    known = {event_id for case in desk.cases for event_id in case.events}
    unknown = [delivery for event_id, delivery in held.items() if event_id not in known]
    await desk.bus.release(unknown)
    for delivery in unknown:
        del held[delivery.event_id]


def drop_finished(desk: Desk, held: dict[str, Delivery]) -> None:
    """Forget cases whose events are all completed; those of schedules have none, and end by their result."""
    for case in desk.cases:
        if not case.scheduled and not any(event_id in held for event_id in case.events):
            desk.cases.close(case.root)


async def rebuild(services: Services, desk: Desk, held: dict[str, Delivery]) -> Opened:
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
    cases = {root: _case(desk, root, held, sorted(found, key=_number)) for root, found in tasks.items()}
    if held:
        log.warning("the king's book is lost: %d of %d events in hand were found again", len(cases), len(held))
    return Opened(cases, None, found=False)


def _number(task: Task) -> tuple[str, int]:
    _, day, number = task.id.split("-")
    return day, int(number)


def _case(desk: Desk, root: str, held: dict[str, Delivery], tasks: list[Task]) -> Case:
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
    result = read_result(desk, case)
    if result is not None and result.status == "needs_human":
        note_question(desk, case, result)  # it was asked when the book was still there
    return case
