"""Report a workflow as an agent's run: its events, its cost, its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.contract import check_result
from kingdom.agents.port import Finished, Text, Tokens, ToolUse, Usage
from kingdom.agents.untrusted import clean, cut_middle
from kingdom.workflow.adapters.recorder import QUESTION_PREFIX
from kingdom.workflow.domain.statuses import ReportStatus, TaskStatus, WorkflowStatus, WorkStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.agents.port import AgentEvent, OnEvent
    from kingdom.workflow.agent_records import WorkflowCost, WorkflowLedger
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.work import Report, Work
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.play_request import PlayRecord
    from kingdom.workflow.ports import StoredEvent


# What became of a workflow, as the result of a task.


GO_ON: Final = "go on"
STOP: Final = "stop"
_MAX_LINKS: Final = 100
_MAX_RESULT_CHARS: Final = 4000  # characters of a text in a result


@dataclass(frozen=True, slots=True)
class WorkflowSnapshot:
    """A workflow at rest."""

    workflow: Workflow
    works: list[Work]
    reports: list[Report]
    branches: Mapping[str, list[str]]  # by the name of each repository


async def read_snapshot(parts: WorkflowContext, workflow_id: str) -> WorkflowSnapshot:
    """Read everything a result is made of."""
    async with parts.store.reading() as tx:
        branches: dict[str, list[str]] = {}
        for tree in await tx.work_trees.of_workflow(workflow_id):
            git = await tx.gits.find(tree.git_id)
            if tree.branch:
                branches.setdefault(git.name if git else tree.git_id, []).append(tree.branch)
        return WorkflowSnapshot(
            await tx.workflows.get(workflow_id),
            await tx.works.of_workflow(workflow_id),
            await tx.reports.of_workflow(workflow_id),
            branches,
        )


def workflow_result(picture: WorkflowSnapshot) -> Finished:
    """The last word on a workflow that rests."""
    workflow = picture.workflow
    match workflow.status:
        case WorkflowStatus.COMPLETED:
            return _finished(picture, "success", _summary(picture))
        case WorkflowStatus.PAUSED:
            return _finished(picture, "needs_human", _summary(picture), question=pause_question(picture))
        case WorkflowStatus.CANCELLED:
            return _finished(picture, "failed", _summary(picture), error=f"workflow {workflow.id} was cancelled")
        case _:
            reason = workflow.reason or f"workflow {workflow.id} is {workflow.status}"
            return _finished(picture, "failed", _summary(picture), error=_cut_result(reason))


def failed_result(error: str) -> Finished:
    """There is no workflow, or nothing can be said of it."""
    return Finished(ok=False, error=error, structured=check_result({"status": "failed", "error": _cut_result(error)}))


def pause_question(picture: WorkflowSnapshot) -> dict[str, Any]:
    """What a person is asked about a workflow that is paused."""
    reason = picture.workflow.reason or "it was paused"
    asked = agent_question(picture.works)
    if asked is not None:
        return {"text": _cut_result(asked)}
    text = f"Workflow {picture.workflow.name} ({picture.workflow.id}) is paused: {reason}.{_branch_list(picture)}"
    return {"text": _cut_result(f"{text} What you answer is told to the agent that goes on."), "choices": [GO_ON, STOP]}


def agent_question(works: list[Work]) -> str | None:
    """The question of an agent that a workflow stopped at; None when it did not stop at one."""
    errors = [
        task.error
        for work in works
        if work.status is WorkStatus.FAILED
        for task in work.tasks
        if task.status is TaskStatus.FAILED and task.error
    ]
    return next((error.removeprefix(QUESTION_PREFIX) for error in errors if error.startswith(QUESTION_PREFIX)), None)


def _finished(picture: WorkflowSnapshot, status: str, summary: str, **more: Any) -> Finished:
    written = [one.file_path for one in picture.reports if one.status is ReportStatus.COMPLETED and one.file_path]
    document = {
        "status": status,
        "summary": summary,
        "links": written[:_MAX_LINKS],
        "workflow_id": picture.workflow.id,
        "branches": {name: list(branches) for name, branches in picture.branches.items()},
        **more,
    }
    return Finished(status != "failed", summary, check_result(document), more.get("error"))


def _summary(picture: WorkflowSnapshot) -> str:
    done = [work for work in picture.works if work.status is WorkStatus.COMPLETED]
    names = ", ".join(work.name for work in done) or "none"
    head = (
        f"{picture.workflow.name}: {len(done)} of {len(picture.works)} works are done ({names}).{_branch_list(picture)}"
    )
    last = next((task.response for work in reversed(done) for task in reversed(work.tasks) if task.response), "")
    return _cut_result(f"{head}\n\n{last}" if last else head)


def _branch_list(picture: WorkflowSnapshot) -> str:
    branches = [f"{branch} of {name}" for name, named in picture.branches.items() for branch in named]
    return f" It is on {', '.join(branches)}." if branches else ""


def _cut_result(text: str) -> str:
    return cut_middle(clean(text), _MAX_RESULT_CHARS)


# What happens to a workflow, told as the events of a run: its works and tasks, what agents answer, what it costs.


_EVENTS_PER_PAGE: Final = 500
_MAX_EVENT_CHARS: Final = 2000  # characters of an answer


class PlayProgress:
    """Tells what is new, each time it is asked to."""

    def __init__(
        self, parts: WorkflowContext, workflow_id: str, spending: WorkflowLedger, record: PlayRecord, tell: OnEvent
    ) -> None:
        self._parts = parts
        self._workflow_id = workflow_id
        self._spending = spending
        self._record = record
        self._tell = tell
        self._told_runs = -1
        self.after = 0  # the number of the last event that was told, or need not be

    async def skip(self) -> None:
        """What has happened so far was told by a former run."""
        while page := await self._parts.store.events(self._workflow_id, self.after, _EVENTS_PER_PAGE):
            self.after = page[-1].sequence

    async def tell(self) -> bool:
        """Tell what has happened since the last time; whether there was anything."""
        told = False
        while page := await self._parts.store.events(self._workflow_id, self.after, _EVENTS_PER_PAGE):
            names = await self._names()
            for event in page:
                self.after = event.sequence
                if (news := _agent_event(event, names)) is not None:
                    told = True
                    self._tell(news)
        return self.emit_usage() or told

    def emit_usage(self) -> bool:
        """Tell what this run has used, when that has changed: former runs have told of what went before."""
        spent = self._spending.read_on()
        if spent.runs == self._told_runs:
            return False
        self._told_runs = spent.runs
        record = self._record
        self._tell(Usage(_subtract(spent.by_class, record.charged), max(0.0, spent.cost_usd - record.charged_usd)))
        return True

    def charge(self) -> None:
        """Note that what was used so far has been told."""
        spent: WorkflowCost = self._spending.total
        self._record.charged_usd, self._record.charged = spent.cost_usd, spent.by_class
        self._record.save()

    async def _names(self) -> Mapping[str, str]:
        """Of works and tasks, by id."""
        async with self._parts.store.reading() as tx:
            works = await tx.works.of_workflow(self._workflow_id)
        tasks = {task.id: f"{work.name}/{task.name}" for work in works for task in work.tasks}
        return {**tasks, **{work.id: work.name for work in works}}


def _agent_event(event: StoredEvent, names: Mapping[str, str]) -> AgentEvent | None:
    payload = event.payload
    about = names.get(str(payload.get("taskId", "")), "") or names.get(str(payload.get("workId", "")), "")
    match event.type:
        case "WorkStarted" | "WorkCompleted" | "CheckpointCreated":
            return ToolUse(event.type, about)
        case "TaskStarted" | "TaskCompleted":
            return ToolUse(event.type, about)
        case "QueryResponded":
            return Text(_cut_event(f"{about}: {payload.get('response', '')}"))
        case "QueryFailed" | "ReportFailed" | "AgentError" | "WorkTreeFailed":
            return Text(_cut_event(f"{about}: {event.type}: {payload.get('error', '')}"))
        case "ReportGenerated":
            return ToolUse(event.type, f"{about} {payload.get('filePath', '')}")
        case "WorkflowStarted" | "WorkflowResumed" | "WorkflowPaused" | "WorkflowCompleted" | "WorkflowCancelled":
            return ToolUse(event.type)
        case "WorkflowFailed":
            return Text(_cut_event(f"WorkflowFailed: {payload.get('reason', '')}"))
    return None


def _cut_event(text: str) -> str:
    return cut_middle(clean(text), _MAX_EVENT_CHARS)


def _subtract(tokens: Tokens, before: Tokens) -> Tokens:
    return Tokens(
        max(0, tokens.input - before.input),
        max(0, tokens.output - before.output),
        max(0, tokens.cache_read - before.cache_read),
        max(0, tokens.cache_write - before.cache_write),
    )
