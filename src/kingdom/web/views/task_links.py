"""Links between tasks: one that retries another, or goes on with it after an answer or a review."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pydantic import Field

from kingdom.court.models import FOLLOW_UP_FIELD, continued_task
from kingdom.web.envelope import ApiModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.court.document_index import IndexEntry

TaskRelation: TypeAlias = Literal["retryOf", "retriedAs", "resumes", "resumedAs"]
_RETRY_EVENT: Final = re.compile(r"-retry-(task-\d{8}-\d{3,})-\d+$")


class RelatedTask(ApiModel):
    """Another task that belongs to one."""

    task_id: str = Field(examples=["task-20260207-002"])
    relation: TaskRelation = Field(
        description="`retryOf` and `resumes` name the task before, the others the one after."
    )


class TaskLinkIndex:
    """The tasks that follow others, from the index of tasks. It is collected again when the index has changed."""

    def __init__(self) -> None:
        self._seen: Sequence[IndexEntry] | None = None
        self._following: dict[str, list[RelatedTask]] = {}

    def of(self, task_id: str, document: Mapping[str, Any], entries: Sequence[IndexEntry]) -> list[RelatedTask]:
        """Return the tasks before and after one."""
        if entries is not self._seen:
            self._seen, self._following = entries, _following(entries)
        resumed = continued_task(document.get("type"), document.get("payload"), document.get(FOLLOW_UP_FIELD))
        before = _before(document.get("case"), resumed)
        found = [] if before is None else [RelatedTask(task_id=before[0], relation=before[1])]
        return found + self._following.get(task_id, [])


def _following(entries: Sequence[IndexEntry]) -> dict[str, list[RelatedTask]]:
    found: dict[str, list[RelatedTask]] = {}
    for entry in reversed(entries):  # the oldest first
        before = _before(entry.fields.get("case"), entry.fields.get("original_task_id"))
        if before is not None:
            relation: TaskRelation = "resumedAs" if before[1] == "resumes" else "retriedAs"
            found.setdefault(before[0], []).append(RelatedTask(task_id=entry.id, relation=relation))
    return found


def _before(case: object, resumed: object) -> tuple[str, TaskRelation] | None:
    """Return the task that one retries or resumes."""
    if isinstance(resumed, str):
        return resumed, "resumes"
    retried = _RETRY_EVENT.search(case) if isinstance(case, str) else None
    return None if retried is None else (retried[1], "retryOf")
