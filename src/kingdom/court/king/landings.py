"""Announce work that was landed after its task had ended (:mod:`kingdom.court.landings`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kingdom.base.files import read_object
from kingdom.base.text import storable
from kingdom.court.king.cases import Case, title_of
from kingdom.court.king.results import task_order
from kingdom.court.landings import LANDED_LATER, is_old, landed_result, noted_landings
from kingdom.court.models import Result, Task, subject_of
from kingdom.court.pull_requests import opened_by
from kingdom.court.queues import MESSAGES, TASKS, all_documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.king.state import KingState
    from kingdom.court.loop import Services


async def collect_landings(services: Services, state: KingState) -> None:
    """Announce each link once, and have its result say where the work is."""
    for task_id, note in noted_landings(state.home):
        if state.cases.of_task(task_id) is not None:
            continue  # its own result is announced first
        before, document = read_object(state.home.result(task_id)), await state.task_document(task_id)
        result = _checked(landed_result(before, note)) if note.get("task_id") == task_id else None
        if result is None or document is None or result.status != "success":
            if is_old(state.home, task_id):
                state.plan.landed[task_id] = None
            continue
        landed = result.document()
        state.plan.landed[task_id] = landed
        for opened in opened_by(landed, result.general):
            state.plan.opened.append(opened.after(document["type"], state.pull_requests.find(opened.url)))
        if before.get(LANDED_LATER) != landed[LANDED_LATER]:
            case, last = await _case_of(services, document)
            where = landed[LANDED_LATER]
            state.plan.drafts += state.composer.landed(case, state.notify(case), where, result.links, last)


def _checked(document: dict[str, Any]) -> Result | None:
    try:
        return Result.model_validate(storable(document))
    except ValidationError:
        return None


async def _case_of(services: Services, document: Mapping[str, Any]) -> tuple[Case, str | None]:
    """Rebuild the case that a task belonged to, as far as a message needs it; also return its last message."""
    task, subject = Task.model_validate(document), subject_of(document)
    root, thread = document.get("case"), task.id
    if root is not None:  # it went on with another task, whose thread its messages belong to
        found = [one.document for one in await all_documents(services, (TASKS,))]
        same = [one for one in found if root in (one.get("case"), one.get("event_id"))]
        thread = min((Task.model_validate(one) for one in same), key=task_order, default=task).id
    title = title_of(document, subject)
    case = Case(task.event_id, task.id, task.target_general, task.type, task.priority, title, thread, subject)
    messages = [one for one in await all_documents(services, (MESSAGES,)) if _is_in_thread(one.document, thread)]
    return case, max((one.id for one in messages), key=lambda one: (len(one), one), default=None)


def _is_in_thread(message: Mapping[str, Any], thread: str) -> bool:
    context = message.get("context")
    return isinstance(context, dict) and thread in (context.get("original_task_id"), context.get("task_id"))
