"""Report a workflow as an agent's run: its events, its cost, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.contract import check_result
from kingdom.agents.port import Finished, Text, Tokens, ToolUse, Usage
from kingdom.agents.untrusted import clean, cut_middle
from kingdom.workflow.domain.statuses import ReportStatus, WorkflowStatus, WorkStatus, WorkTreeStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.agents.port import AgentEvent, OnEvent
    from kingdom.workflow.agent_records import WorkflowCost, WorkflowLedger
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.landing import Landing
    from kingdom.workflow.domain.work import Report, Task, Work
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.play_request import PlayRecord
    from kingdom.workflow.ports import StoredEvent

GO_ON: Final = "go on"
STOP: Final = "stop"
_MAX_LINKS: Final = 100
_MAX_RESULT_CHARS: Final = 4000  # of a text in a result
_MAX_EVENT_CHARS: Final = 2000  # of a text in an event
_EVENTS_PER_PAGE: Final = 500


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────


class PlayProgress:
    """Emits the events of a workflow as events of a run."""

    def __init__(
        self,
        context: WorkflowContext,
        workflow_id: str,
        ledger: WorkflowLedger,
        record: PlayRecord,
        on_event: OnEvent,
    ) -> None:
        self._context = context
        self._workflow_id = workflow_id
        self._ledger = ledger
        self._record = record
        self._on_event = on_event
        self._counted_runs = -1
        self.after = 0  # the number of the last event that was emitted or skipped

    async def skip(self) -> None:
        """Skip the events so far: an earlier run emitted them."""
        while page := await self._context.store.events(self._workflow_id, self.after, _EVENTS_PER_PAGE):
            self.after = page[-1].sequence

    async def emit(self) -> bool:
        """Emit what happened since the last call; return whether there was anything."""
        emitted = False
        while page := await self._context.store.events(self._workflow_id, self.after, _EVENTS_PER_PAGE):
            names = await self._names()
            for event in page:
                self.after = event.sequence
                if (agent_event := _agent_event(event, names)) is not None:
                    emitted = True
                    self._on_event(agent_event)
        return self.emit_usage() or emitted

    def emit_usage(self) -> bool:
        """Emit the usage of this run if it changed; that of earlier runs is subtracted."""
        cost = self._ledger.read_on()
        if cost.runs == self._counted_runs:
            return False
        self._counted_runs = cost.runs
        record = self._record
        usage = Usage(_subtract(cost.by_class, record.charged), max(0.0, cost.cost_usd - record.charged_usd))
        self._on_event(usage)
        return True

    def mark_charged(self) -> None:
        """Record that the usage so far was emitted."""
        cost: WorkflowCost = self._ledger.total
        self._record.charged_usd, self._record.charged = cost.cost_usd, cost.by_class
        self._record.save()

    async def _names(self) -> Mapping[str, str]:
        """Return the names of works and tasks by id."""
        async with self._context.store.reading() as tx:
            works = await tx.works.of_workflow(self._workflow_id)
        tasks = {task.id: f"{work.name}/{task.name}" for work in works for task in work.tasks}
        return {**tasks, **{work.id: work.name for work in works}}


def _agent_event(event: StoredEvent, names: Mapping[str, str]) -> AgentEvent | None:
    payload = event.payload
    about = names.get(str(payload.get("taskId", "")), "") or names.get(str(payload.get("workId", "")), "")
    match event.type:
        case "WorkStarted" | "WorkCompleted" | "CheckpointCreated" | "TaskStarted" | "TaskCompleted":
            return ToolUse(event.type, about)
        case "QuestionAsked":
            return Text(_cut_event(f"{about} asks: {payload.get('question', '')}"))
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


# ── result ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class WorkflowSnapshot:
    """A workflow that rests, with what its result is made of."""

    workflow: Workflow
    works: list[Work]
    reports: list[Report]
    branches: Mapping[str, list[str]]  # by repository name
    landings: list[Landing] = field(default_factory=list)


async def read_snapshot(context: WorkflowContext, workflow_id: str) -> WorkflowSnapshot:
    """Read everything a result is made of."""
    async with context.store.reading() as tx:
        branches: dict[str, list[str]] = {}
        for tree in await tx.work_trees.of_workflow(workflow_id):
            git = await tx.gits.find(tree.git_id)
            if tree.branch and tree.status is not WorkTreeStatus.RELEASED:
                branches.setdefault(git.name if git else tree.git_id, []).append(tree.branch)
        return WorkflowSnapshot(
            await tx.workflows.get(workflow_id),
            await tx.works.of_workflow(workflow_id),
            await tx.reports.of_workflow(workflow_id),
            branches,
            await tx.landings.of_workflow(workflow_id),
        )


def workflow_result(snapshot: WorkflowSnapshot) -> Finished:
    """Return the result of a workflow that rests."""
    workflow = snapshot.workflow
    match workflow.status:
        case WorkflowStatus.COMPLETED:
            return _finished(snapshot, "success")
        case WorkflowStatus.PAUSED:
            return _finished(snapshot, "needs_human", question=pause_question(snapshot))
        case WorkflowStatus.CANCELLED:
            return _finished(snapshot, "failed", error=f"workflow {workflow.name} was cancelled")
        case _:
            reason = workflow.reason or f"workflow {workflow.name} is {workflow.status}"
            return _finished(snapshot, "failed", error=_cut_result(reason))


def failed_result(error: str) -> Finished:
    """Return the result of a run without a workflow."""
    return Finished(ok=False, error=error, structured=check_result({"status": "failed", "error": _cut_result(error)}))


def ended_result(status: str, summary: str) -> Finished:
    """Return the result of a run that had no work to do."""
    return Finished(True, summary, check_result({"status": status, "summary": summary}))


def pause_question(snapshot: WorkflowSnapshot) -> dict[str, Any]:
    """Return the question a paused workflow asks a person."""
    reason = snapshot.workflow.reason or "it was paused"
    asked = agent_question(snapshot.works)
    if asked is not None:
        more = {"choices": list(asked.choices), "default": asked.default, "deadline": asked.deadline}
        return {"text": _cut_result(asked.question or "")} | {key: value for key, value in more.items() if value}
    text = f"Workflow {snapshot.workflow.name} ({snapshot.workflow.id}) is paused: {reason}.{_branch_list(snapshot)}"
    return {"text": _cut_result(f"{text} Your answer goes to the agent that continues."), "choices": [GO_ON, STOP]}


def agent_question(works: list[Work]) -> Task | None:
    """Return the task whose agent asks a person, or None if the workflow stopped for another reason."""
    waiting = [work for work in works if work.status is WorkStatus.WAITING]
    return next((task for work in waiting for task in work.tasks if task.question), None)


def _finished(snapshot: WorkflowSnapshot, status: str, **more: Any) -> Finished:
    summary = _summary(snapshot)
    written = [one.file_path for one in snapshot.reports if one.status is ReportStatus.COMPLETED and one.file_path]
    document = {
        "status": status,
        "summary": summary,
        "links": [*(one.url for one in snapshot.landings if one.url), *written][:_MAX_LINKS],
        "workflow_id": snapshot.workflow.id,
        "pull_requests": [{"url": one.url, "branch": one.branch} for one in snapshot.landings if one.url],
        "branches": {name: list(branches) for name, branches in snapshot.branches.items()},
        **more,
    }
    return Finished(status != "failed", summary, check_result(document), more.get("error"))


def _summary(snapshot: WorkflowSnapshot) -> str:
    done = [work for work in snapshot.works if work.status is WorkStatus.COMPLETED]
    names = ", ".join(work.name for work in done) or "none"
    counts = f"{len(done)} of {len(snapshot.works)} works are done ({names})"
    head = f"{snapshot.workflow.name}: {counts}.{_branch_list(snapshot)}"
    last = next((task.response for work in reversed(done) for task in reversed(work.tasks) if task.response), "")
    return _cut_result(f"{head}\n\n{last}" if last else head)


def _branch_list(snapshot: WorkflowSnapshot) -> str:
    landed = [one.url or f"{one.branch} at {one.remote}" for one in snapshot.landings if one.pushed]
    again = " It is tried again." if snapshot.workflow.land_again is not None else ""
    problems = [f" It could not be landed: {one.error}.{again}" for one in snapshot.landings if one.error]
    branches = [f"{branch} of {name}" for name, named in snapshot.branches.items() for branch in named]
    where = landed or branches
    return (f" It is on {', '.join(where)}." if where else "") + "".join(problems)


def _cut_result(text: str) -> str:
    return cut_middle(clean(text), _MAX_RESULT_CHARS)
