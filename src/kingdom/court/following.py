"""Follow a task while it runs: what its soldiers say, one after another, until it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.agents.engines import default_engines
from kingdom.agents.folder import RunFolder
from kingdom.agents.hosts import TmuxHost
from kingdom.agents.transcript import Transcript, describe_event
from kingdom.base.files import read_object
from kingdom.court.commands import find_task
from kingdom.court.soldiers import soldiers_of_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.queues import StoredDocument
    from kingdom.court.soldiers import Soldier

_PAUSE_SECONDS: Final = 0.3  # between two reads of a transcript
_HELD_STATES: Final = ("pending", "in_progress")


class TaskEnd(NamedTuple):
    """How a task ended."""

    status: str
    summary: str


def terminal_command(home: Home, task_id: str) -> list[str] | None:
    """Return the command that shows the running soldier of a task in its own terminal; None if it has none."""
    for soldier in reversed(soldiers_of_task(home, task_id)):
        if soldier.alive and read_object(RunFolder(home.soldiers, soldier.id).spec).get("show") is True:
            return TmuxHost().attach_command(soldier.id)
    return None


async def follow_task(services: Services, task_id: str, say: Callable[[str], None]) -> TaskEnd:
    """Pass on what the soldiers of a task say, from the beginning, until the task has ended.

    Raises :class:`CourtError` if there is no such task.
    """
    followed: dict[str, Transcript] = {}
    waiting = False
    while True:
        task = await find_task(services, task_id)
        soldiers = soldiers_of_task(services.home, task_id)
        for soldier in soldiers:
            if soldier.id not in followed:
                followed[soldier.id] = Transcript(soldier.transcript, soldier.order, default_engines())
                say(f"# {soldier.id}, {soldier.order.engine}")
            _pass_on(followed[soldier.id], say)
        if task.state not in _HELD_STATES:
            return _end(task, read_object(services.home.result(task_id)))
        if not waiting and not _any_at_work(soldiers):
            say(f"# {task_id} is {task.state}: waiting for a soldier")
        waiting = not _any_at_work(soldiers)
        await asyncio.sleep(_PAUSE_SECONDS)


def _end(task: StoredDocument, result: dict[str, Any]) -> TaskEnd:
    asked = result.get("question")
    question = asked.get("text") if isinstance(asked, dict) else None
    summary = question or result.get("summary") or result.get("error") or ""
    return TaskEnd(str(result.get("status") or task.document.get("status")), str(summary))


def _any_at_work(soldiers: list[Soldier]) -> bool:
    return any(soldier.at_work for soldier in soldiers)


def _pass_on(transcript: Transcript, say: Callable[[str], None]) -> None:
    for event in transcript.read_new():
        if text := describe_event(event):
            say(text)
