"""``kingdom answer``: answer the question of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.options import TaskId
from kingdom.cli.court.session import in_court, user_name
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
    event_id = in_court(home, lambda services: answer_question(services, task_id, text))
    if json:
        output.emit({"id": event_id, "task_id": task_id})
    else:
        output.say(f"passed on as {event_id}")


async def answer_question(services: Services, task_id: str, text: str) -> str:
    """Answer the question of a task; returns the id of the event."""
    from kingdom.court.commands import answer_question as pass_on

    return await pass_on(services, task_id, text, user_name())
