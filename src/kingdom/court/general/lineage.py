"""What a task goes on from: the tasks before it that asked a person, back to the one it began as.

A result names the task it went on from (``original_task_id``) and the repository it worked on, so that the next one
finds its way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.errors import InvalidId
from kingdom.court.files import read_json
from kingdom.court.general.errors import TaskRefused

if TYPE_CHECKING:
    from kingdom.court.home import Home
    from kingdom.court.models import Task

RESUME: Final = "resume"
_MOST: Final = 1000  # questions of one piece of work


@dataclass(frozen=True, slots=True)
class Lineage:
    """The former tasks of a resume, the latest first; empty for a task that begins something."""

    task_id: str
    former: tuple[str, ...] = ()
    repo: str | None = None  # what the former tasks worked on
    task_type: str | None = None  # of the task it began as

    @property
    def work_id(self) -> str:
        """The task whose place is worked in."""
        return self.former[-1] if self.former else self.task_id


def lineage(home: Home, task: Task) -> Lineage:
    """Where a task comes from. Raises :class:`TaskRefused` for a resume that names no task."""
    if task.type != RESUME:
        return Lineage(task.id)
    former: list[str] = []
    repo: str | None = None
    kind: str | None = None
    before: Any = task.payload.get("original_task_id")
    while before is not None and before not in former and len(former) < _MOST:
        try:
            document = read_json(home.result(before))
        except InvalidId:
            raise TaskRefused(f"the task to resume, {before!r:.80}, is not the id of a task") from None
        former.append(before)
        result = document if isinstance(document, dict) else {}
        repo = repo if repo is not None else result.get("repo")
        kind = result.get("task_type") or kind
        before = result.get("original_task_id")
    if not former:
        raise TaskRefused("a resume without original_task_id in its payload: there is nothing to go on with")
    return Lineage(task.id, tuple(former), repo, kind)


def session_of(home: Home, line: Lineage) -> str | None:
    """The latest conversation of the former tasks, if one is known."""
    for task_id in line.former:
        try:
            session = home.session_id(task_id).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if session:
            return session
    return None
