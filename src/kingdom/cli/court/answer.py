"""``kingdom answer``: answer the question of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.options import TaskId
from kingdom.cli.court.session import in_court, task_or_failure, user_name
from kingdom.cli.home import HomeOption

if TYPE_CHECKING:
    from kingdom.court.loop import Services


def answer(
    task_id: TaskId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer.")],
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Answer the question of a task, so that its work goes on. The first answer counts."""
    if not text.strip():
        raise output.misuse("the answer is empty")
    event_id = in_court(home, lambda services: _answer(services, task_id, text))
    if json:
        output.emit({"id": event_id, "taskId": task_id})
    else:
        output.say(f"passed on as {event_id}")


async def _answer(services: Services, task_id: str, text: str) -> str:
    from kingdom.court.commands import answer as pass_on
    from kingdom.court.overview import open_questions

    task = await task_or_failure(services, task_id)
    questions = await open_questions(services)
    if not any(question.task_id == task_id for question in questions):
        state = task.document.get("status")
        why = "somebody has answered it already" if state == "needs_human" else f"it is {state} and asks nothing"
        others = ", ".join(question.task_id for question in questions) or "none"
        raise output.Failure("NO_QUESTION", f"{task_id}: {why} (open questions: {others})")
    return await pass_on(services, task_id, text, user_name())
