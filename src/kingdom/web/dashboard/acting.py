"""What a visitor has done to a task: asked about first where it cannot be undone, and told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.court import commands
from kingdom.web.api.court.parameters import SOURCE
from kingdom.web.dashboard.building import confirm, told

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit

USER: Final = "dashboard"


async def answer(visit: Visit, task_id: str, text: str) -> bool:
    """Answer the question of a task; True when that is done."""

    async def act() -> None:
        await commands.answer_question(visit.court, task_id, text, USER, SOURCE)

    return await told(visit, act, visit.words("task.answered", task=task_id))


async def cancel(visit: Visit, task_id: str) -> bool:
    """Have a task ended, if the visitor is sure."""
    words = visit.words
    sure = await confirm(
        visit,
        words("task.cancel.sure", task=task_id),
        detail=words("task.cancel.detail"),
        yes=words("task.cancel"),
        danger=True,
    )

    async def act() -> None:
        await commands.cancel_task(visit.court, task_id, USER, SOURCE)

    return sure and await told(visit, act, words("task.cancelled", task=task_id))


async def retry(visit: Visit, task_id: str) -> bool:
    """Have a task done once more, if the visitor is sure."""
    words = visit.words
    sure = await confirm(
        visit, words("task.retry.sure", task=task_id), detail=words("task.retry.detail"), yes=words("task.retry")
    )

    async def act() -> None:
        await commands.retry_task(visit.court, task_id, USER, SOURCE)

    return sure and await told(visit, act, words("task.retried", task=task_id))
