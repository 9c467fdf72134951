"""What became of a workflow, as the result of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.contract import check_result
from kingdom.agents.port import Finished
from kingdom.agents.untrusted import clean, cut_middle
from kingdom.workflow.adapters.hearing import ASKS
from kingdom.workflow.domain.statuses import ReportStatus, TaskStatus, WorkflowStatus, WorkStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.workflow.domain.task import Report
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.parts import Parts

GO_ON: Final = "go on"
STOP: Final = "stop"
_MOST_LINKS: Final = 100
_LONGEST: Final = 4000  # characters of a text in a result


@dataclass(frozen=True, slots=True)
class Picture:
    """A workflow at rest."""

    workflow: Workflow
    works: list[Work]
    reports: list[Report]
    branches: Mapping[str, list[str]]  # by the name of each repository


async def look(parts: Parts, workflow_id: str) -> Picture:
    """Read everything a result is made of."""
    async with parts.store.reading() as tx:
        branches: dict[str, list[str]] = {}
        for tree in await tx.work_trees.of_workflow(workflow_id):
            git = await tx.gits.find(tree.git_id)
            if tree.branch:
                branches.setdefault(git.name if git else tree.git_id, []).append(tree.branch)
        return Picture(
            await tx.workflows.get(workflow_id),
            await tx.works.of_workflow(workflow_id),
            await tx.reports.of_workflow(workflow_id),
            branches,
        )


def finished(picture: Picture) -> Finished:
    """The last word on a workflow that rests."""
    workflow = picture.workflow
    match workflow.status:
        case WorkflowStatus.COMPLETED:
            return _said(picture, "success", _summary(picture))
        case WorkflowStatus.PAUSED:
            return _said(picture, "needs_human", _summary(picture), question=question(picture))
        case WorkflowStatus.CANCELLED:
            return _said(picture, "failed", _summary(picture), error=f"workflow {workflow.id} was cancelled")
        case _:
            reason = workflow.reason or f"workflow {workflow.id} is {workflow.status}"
            return _said(picture, "failed", _summary(picture), error=_cut(reason))


def failed(error: str) -> Finished:
    """There is no workflow, or nothing can be said of it."""
    return Finished(ok=False, error=error, structured=check_result({"status": "failed", "error": _cut(error)}))


def question(picture: Picture) -> dict[str, Any]:
    """What a person is asked about a workflow that is paused."""
    reason = picture.workflow.reason or "it was paused"
    asked = agents_question(picture.works)
    if asked is not None:
        return {"text": _cut(asked)}
    text = f"Workflow {picture.workflow.name} ({picture.workflow.id}) is paused: {reason}.{_where(picture)}"
    return {"text": _cut(f"{text} What you answer is told to the agent that goes on."), "choices": [GO_ON, STOP]}


def agents_question(works: list[Work]) -> str | None:
    """The question of an agent that a workflow stopped at; None when it did not stop at one."""
    errors = [
        task.error
        for work in works
        if work.status is WorkStatus.FAILED
        for task in work.tasks
        if task.status is TaskStatus.FAILED and task.error
    ]
    return next((error.removeprefix(ASKS) for error in errors if error.startswith(ASKS)), None)


def _said(picture: Picture, status: str, summary: str, **more: Any) -> Finished:
    written = [one.file_path for one in picture.reports if one.status is ReportStatus.COMPLETED and one.file_path]
    document = {
        "status": status,
        "summary": summary,
        "links": written[:_MOST_LINKS],
        "workflow_id": picture.workflow.id,
        "branches": {name: list(branches) for name, branches in picture.branches.items()},
        **more,
    }
    return Finished(status != "failed", summary, check_result(document), more.get("error"))


def _summary(picture: Picture) -> str:
    done = [work for work in picture.works if work.status is WorkStatus.COMPLETED]
    names = ", ".join(work.name for work in done) or "none"
    head = f"{picture.workflow.name}: {len(done)} of {len(picture.works)} works are done ({names}).{_where(picture)}"
    last = next((task.response for work in reversed(done) for task in reversed(work.tasks) if task.response), "")
    return _cut(f"{head}\n\n{last}" if last else head)


def _where(picture: Picture) -> str:
    branches = [f"{branch} of {name}" for name, named in picture.branches.items() for branch in named]
    return f" It is on {', '.join(branches)}." if branches else ""


def _cut(text: str) -> str:
    return cut_middle(clean(text), _LONGEST)
