"""Tasks of type ``cancel``: a person wants another task of this general to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from kingdom.agents.untrusted import clean_line
from kingdom.court.general.notes import Note
from kingdom.court.general.results import moment
from kingdom.court.models import Result, TaskId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kingdom.court.general.campaign import Campaign
    from kingdom.court.general.quarters import Quarters
    from kingdom.court.models import Task

CANCEL: Final = "cancel"
_task_ids: Final = TypeAdapter[str](TaskId)


async def cancel(
    quarters: Quarters,
    task: Task,
    campaigns: Mapping[str, Campaign],
    claim: Callable[[str], Awaitable[Campaign | None]],
) -> Result | None:
    """Do what a ``cancel`` task asks for; its result, or None while the other task is still ending.

    ``claim`` takes up a waiting task by its id.
    """
    named = task.payload.get("task_id")
    try:
        target = _task_ids.validate_python(named)
    except ValidationError:
        return _result(quarters, task, error=f"{named!r:.80} is not the id of a task")
    reason = _reason(task)
    campaign = campaigns.get(target)
    if campaign is None and not quarters.home.result(target).exists():
        record = await quarters.bus.find(target)
        document = None if record is None else record.envelope.payload
        if record is None or not isinstance(document, dict) or document.get("target_general") != quarters.name:
            return _result(quarters, task, error=f"{quarters.name} has no task {target}")
        if record.status == "PENDING":
            campaign = await claim(target)
            if campaign is None:  # parked: it cannot be claimed yet
                _note_down(quarters, target, reason)
                return _result(quarters, task, f"{target} is parked; it ends as cancelled when its time comes")
        elif record.status == "PROCESSING":
            return _result(quarters, task, error=f"{target} is held by {record.locked_by}: try again")
    if campaign is None:
        return _result(quarters, task, f"{target} has ended")
    campaign.cancel(reason)
    return None


def _note_down(quarters: Quarters, task_id: str, reason: str) -> None:
    note = quarters.notes.load(task_id) or Note(task_id, quarters.clock())
    note.cancelled = reason
    quarters.notes.save(note)


def _reason(task: Task) -> str:
    reason = task.payload.get("reason")
    return clean_line(reason) if isinstance(reason, str) and reason else "cancelled"


def _result(quarters: Quarters, task: Task, summary: str = "", error: str | None = None) -> Result:
    now = moment(quarters.clock())
    more: dict[str, Any] = {"event_id": task.event_id, "task_type": task.type}
    return Result(
        task_id=task.id,
        general=quarters.name,
        status="success" if error is None else "failed",
        summary=summary,
        error=error,
        started_at=now,
        ended_at=now,
        **more,
    )
