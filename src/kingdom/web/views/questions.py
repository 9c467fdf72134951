"""Questions of tasks: the open one with its deadline, the answer, and the status that people are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from kingdom.base.files import read_json
from kingdom.court.overview import question_deadline
from kingdom.court.questions import NEEDS_HUMAN
from kingdom.web.views.redaction import json_safe

if TYPE_CHECKING:
    from kingdom.court.document_index import EntryFilter, IndexEntry
    from kingdom.court.home import Home
    from kingdom.web.views.court_state import CourtViewState


class TaskAnswer(BaseModel):
    """The answer to the question of a task."""

    text: str
    user: str = Field(examples=["ann"])
    at: str
    resumed_as: str | None = Field(description="The task that goes on; null while the king has not created it.")


async def read_answer(view_state: CourtViewState, task_id: str) -> TaskAnswer | None:
    """Return the answer to the question of a task, if it has one."""
    found = await view_state.questions.answer(task_id)
    return None if found is None else TaskAnswer(**json_safe(found.document()))


def with_shown_status(status: str, settled: dict[str, str]) -> EntryFilter:
    """Keep tasks with a status that a question may turn into, or that it leaves."""

    def keep(entries: list[IndexEntry]) -> list[IndexEntry]:
        return [
            entry
            for entry in entries
            if (settled.get(entry.id, entry.status) if entry.status == NEEDS_HUMAN else entry.status) == status
        ]

    return keep


def open_question(home: Home, task_id: str) -> dict[str, Any] | None:
    """Return the question of a task that asks, with the time until which the court waits."""
    result = read_json(home.result(task_id))
    if not isinstance(result, dict):
        return None
    question = result.get("question")
    found = question if isinstance(question, dict) else {"text": str(result.get("summary") or ""), "choices": []}
    return json_safe({**found, "deadline": question_deadline(home, task_id, found)})  # type: ignore[no-any-return]
