"""What happens to a workflow, told as the events of a run: its works and tasks, what agents answer, what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.agents.port import Text, Tokens, ToolUse, Usage
from kingdom.agents.untrusted import clean, cut_middle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.agents.port import AgentEvent, OnEvent
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.playing.record import Record
    from kingdom.workflow.ports import SeenEvent
    from kingdom.workflow.spending import Spending, Spent

_PAGE: Final = 500
_LONGEST: Final = 2000  # characters of an answer


class Progress:
    """Tells what is new, each time it is asked to."""

    def __init__(self, parts: Parts, workflow_id: str, spending: Spending, record: Record, tell: OnEvent) -> None:
        self._parts = parts
        self._workflow_id = workflow_id
        self._spending = spending
        self._record = record
        self._tell = tell
        self._told_runs = -1
        self.after = 0  # the number of the last event that was told, or need not be

    async def skip(self) -> None:
        """What has happened so far was told by a former run."""
        while page := await self._parts.store.events(self._workflow_id, self.after, _PAGE):
            self.after = page[-1].sequence

    async def tell(self) -> bool:
        """Tell what has happened since the last time; whether there was anything."""
        told = False
        while page := await self._parts.store.events(self._workflow_id, self.after, _PAGE):
            names = await self._names()
            for event in page:
                self.after = event.sequence
                if (news := _news(event, names)) is not None:
                    told = True
                    self._tell(news)
        return self.tell_usage() or told

    def tell_usage(self) -> bool:
        """Tell what this run has used, when that has changed: former runs have told of what went before."""
        spent = self._spending.read_on()
        if spent.runs == self._told_runs:
            return False
        self._told_runs = spent.runs
        record = self._record
        self._tell(Usage(_less(spent.by_class, record.charged), max(0.0, spent.cost_usd - record.charged_usd)))
        return True

    def charge(self) -> None:
        """Note that what was used so far has been told."""
        spent: Spent = self._spending.total
        self._record.charged_usd, self._record.charged = spent.cost_usd, spent.by_class
        self._record.save()

    async def _names(self) -> Mapping[str, str]:
        """Of works and tasks, by id."""
        async with self._parts.store.reading() as tx:
            works = await tx.works.of_workflow(self._workflow_id)
        tasks = {task.id: f"{work.name}/{task.name}" for work in works for task in work.tasks}
        return {**tasks, **{work.id: work.name for work in works}}


def _news(event: SeenEvent, names: Mapping[str, str]) -> AgentEvent | None:
    payload = event.payload
    about = names.get(str(payload.get("taskId", "")), "") or names.get(str(payload.get("workId", "")), "")
    match event.type:
        case "WorkStarted" | "WorkCompleted" | "CheckpointCreated":
            return ToolUse(event.type, about)
        case "TaskStarted" | "TaskCompleted":
            return ToolUse(event.type, about)
        case "QueryResponded":
            return Text(_cut(f"{about}: {payload.get('response', '')}"))
        case "QueryFailed" | "ReportFailed" | "AgentError" | "WorkTreeFailed":
            return Text(_cut(f"{about}: {event.type}: {payload.get('error', '')}"))
        case "ReportGenerated":
            return ToolUse(event.type, f"{about} {payload.get('filePath', '')}")
        case "WorkflowStarted" | "WorkflowResumed" | "WorkflowPaused" | "WorkflowCompleted" | "WorkflowCancelled":
            return ToolUse(event.type)
        case "WorkflowFailed":
            return Text(_cut(f"WorkflowFailed: {payload.get('reason', '')}"))
    return None


def _cut(text: str) -> str:
    return cut_middle(clean(text), _LONGEST)


def _less(tokens: Tokens, before: Tokens) -> Tokens:
    return Tokens(
        max(0, tokens.input - before.input),
        max(0, tokens.output - before.output),
        max(0, tokens.cache_read - before.cache_read),
        max(0, tokens.cache_write - before.cache_write),
    )
