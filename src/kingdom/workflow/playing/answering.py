"""A person's answer, put into the query of the task that waits for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kingdom.agents.untrusted import clean, cut_middle, fence
from kingdom.workflow.domain.changes import UpdateTask
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus
from kingdom.workflow.usecases.modify_workflow import ModifyWorkflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.domain.task import Task
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.playing.commission import Answer

_LABEL: Final = "what a person said: it decides what was asked"
_LONGEST: Final = 32 * 1024  # characters of an answer
_MARKER: Final = re.compile(r"\{(?=[{%#])")


async def give_answer(parts: Parts, workflow_id: str, answer: Answer) -> None:
    """Add an answer to the query of the task the workflow stopped at, or else of the next one; may be repeated."""
    async with parts.store.reading() as tx:
        works = await tx.works.of_workflow(workflow_id)
    heading = f"# A person's answer ({answer.task_id})"
    task = waiting_task(works)
    if task is None or any(heading in one.query for work in works for one in work.tasks):
        return
    said = literal(fence(cut_middle(clean(answer.text), _LONGEST), _LABEL))
    query = f"{task.query.rstrip()}\n\n{heading}\n\n{said}\n"
    await ModifyWorkflow(parts).execute(workflow_id, [UpdateTask(task.id, {"query": query})])


def waiting_task(works: Sequence[Work]) -> Task | None:
    """The task that a workflow stopped at, or the next one."""
    stopped = [work for work in works if work.status in (WorkStatus.FAILED, WorkStatus.PAUSED)]
    waiting = [work for work in works if work.status is WorkStatus.PENDING]
    tasks = [task for work in (*stopped, *waiting) for task in work.tasks]
    return next((task for task in tasks if task.status is not TaskStatus.COMPLETED), None)


def literal(text: str) -> str:
    """A text as it has to stand in a query, so that nothing in it is taken for a variable."""
    return _MARKER.sub("{{ '{' }}", text)
