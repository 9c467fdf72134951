"""Everything about one workflow, as a document for programs and as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from kingdom.workflow.domain.statuses import WorkStatus, WorkTreeStatus

if TYPE_CHECKING:
    from kingdom.workflow.domain.landing import Landing
    from kingdom.workflow.domain.resources import Checkpoint, WorkTree
    from kingdom.workflow.domain.work import Report, Task, Work
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.store.transactions import WorkflowTransaction


@dataclass(frozen=True, slots=True)
class WorkflowOverview:
    """A workflow with everything that belongs to it, read in one transaction."""

    workflow: Workflow
    works: list[Work]
    trees: list[WorkTree]
    checkpoints: list[Checkpoint]
    reports: list[Report]
    git_names: dict[str, str]
    landings: list[Landing] = field(default_factory=list)

    @classmethod
    async def read(cls, tx: WorkflowTransaction, workflow: Workflow) -> WorkflowOverview:
        """Read everything that belongs to a workflow."""
        trees = await tx.work_trees.of_workflow(workflow.id)
        ids = {ref.git_id for ref in workflow.git_refs} | {tree.git_id for tree in trees}
        gits = [await tx.gits.find(git_id) for git_id in sorted(ids)]
        return cls(
            workflow,
            await tx.works.of_workflow(workflow.id),
            trees,
            sorted(await tx.checkpoints.of_workflow(workflow.id), key=lambda point: point.number),
            await tx.reports.of_workflow(workflow.id),
            {git.id: git.name for git in gits if git is not None},
            await tx.landings.of_workflow(workflow.id),
        )

    @property
    def present_trees(self) -> list[WorkTree]:
        """The worktrees that are not released."""
        return [tree for tree in self.trees if tree.status is not WorkTreeStatus.RELEASED]

    def checkpoint_of(self, work: Work) -> Checkpoint | None:
        """Return the last valid checkpoint of a Work, or None."""
        points = [point for point in self.checkpoints if point.work_id == work.id and point.valid and point.complete]
        return points[-1] if points else None

    def report_of(self, task: Task) -> Report | None:
        """Return the report of a task, or None."""
        return next((report for report in self.reports if report.id == task.report_id), None)

    def document(self) -> dict[str, Any]:
        """Return the overview as a JSON document."""
        return {
            **workflow_summary(self.workflow),
            "description": self.workflow.description,
            "reason": self.workflow.reason,
            "variables": dict(self.workflow.variables),
            "onFailure": self.workflow.on_failure,
            "land": None if self.workflow.land is None else asdict(self.workflow.land),
            "forkedFrom": self.workflow.forked_from,
            "mcpServers": [ref.mcp_server_id for ref in self.workflow.mcp_server_refs],
            "repositories": [self._tree(tree) for tree in self.present_trees] or self._unmade(),
            "works": [self._work(work) for work in self.works],
            "checkpoints": [self._checkpoint(point) for point in self.checkpoints if point.complete],
            "landing": self.workflow.landing,
            "landAgain": land_again_document(self.workflow),
            "landings": [self._landing(landing) for landing in self.landings],
        }

    def _tree(self, tree: WorkTree) -> dict[str, Any]:
        return {
            "id": tree.id,
            "name": self.git_names.get(tree.git_id, tree.git_id),
            "gitId": tree.git_id,
            "workId": tree.work_id,
            "status": tree.status,
            "base": tree.base,
            "branch": tree.branch,
            "path": tree.path,
            "error": tree.error,
        }

    def _unmade(self) -> list[dict[str, Any]]:
        return [
            {"name": self.git_names.get(ref.git_id, ref.git_id), "gitId": ref.git_id, "base": ref.base, "status": None}
            for ref in self.workflow.git_refs
        ]

    def _work(self, work: Work) -> dict[str, Any]:
        point = self.checkpoint_of(work)
        return {
            "id": work.id,
            "name": work.name,
            "sequence": work.sequence,
            "status": work.status,
            "agent": work.agent_status,
            "engine": work.engine,
            "model": work.model,
            "attempt": work.attempt,
            "after": list(work.after),
            "merge": work.merge,
            "pauseAfter": work.pause_after,
            "continues": work.continues,
            "sessionId": work.session_id,
            "error": work.error,
            "checkpointId": None if point is None else point.id,
            "tasks": [self._task(task) for task in work.tasks],
        }

    def _task(self, task: Task) -> dict[str, Any]:
        report = self.report_of(task)
        return {
            "id": task.id,
            "name": task.name,
            "order": task.order,
            "status": task.status,
            "query": task.query,
            "queryStatus": task.query_status,
            "outline": list(task.outline),
            "reportStatus": task.report_status,
            "reportId": task.report_id,
            "reportPath": None if report is None else report.file_path,
            "attempt": task.attempt,
            "retries": task.retries,
            "response": task.response,
            "question": task.question,
            "choices": list(task.choices),
            "defaultAnswer": task.default,
            "deadline": task.deadline,
            "error": task.error,
        }

    def _landing(self, landing: Landing) -> dict[str, Any]:
        return {
            "name": self.git_names.get(landing.git_id, landing.git_id),
            "gitId": landing.git_id,
            "remote": landing.remote,
            "branch": landing.branch,
            "base": landing.base,
            "commit": landing.pushed,
            "number": landing.number,
            "url": landing.url,
            "error": landing.error,
            "landedAt": None if landing.landed_at is None else landing.landed_at.isoformat(),
        }

    def _checkpoint(self, point: Checkpoint) -> dict[str, Any]:
        return {
            "id": point.id,
            "workId": point.work_id,
            "workName": next((work.name for work in self.works if work.id == point.work_id), None),
            "attempt": point.work_attempt,
            "createdAt": point.created_at.isoformat(),
            "valid": point.valid,
            "hashes": {self.git_names.get(git_id, git_id): commit for git_id, commit in point.hashes.items()},
        }


def land_again_document(workflow: Workflow) -> dict[str, Any] | None:
    """Return when a workflow is landed again as a JSON document, or None."""
    again = workflow.land_again
    return None if again is None else {"at": again.at.isoformat(), "tries": again.tries}


def workflow_summary(workflow: Workflow) -> dict[str, Any]:
    """Return the JSON document of a workflow in a list."""
    done = list(workflow.work_statuses.values()).count(WorkStatus.COMPLETED)
    return {
        "id": workflow.id,
        "name": workflow.name,
        "status": workflow.status,
        "issueKey": workflow.issue_key,
        "templateId": workflow.template_id,
        "createdAt": workflow.created_at.isoformat(),
        "worksTotal": len(workflow.work_statuses),
        "worksCompleted": done,
    }


# ── events for people ────────────────────────────────────────────────────────────────────────────────────────────────


EventTone: TypeAlias = Literal["bad", "good", "plain"]
_BAD_WORDS: Final = ("Failed", "Error", "Cancelled")
_GOOD_WORDS: Final = ("Completed", "CheckpointCreated", "ReportGenerated")
_MAX_VALUE_CHARS: Final = 200  # of one payload value in the text of an event


class DescribedEvent(Protocol):
    """An event with its type and payload."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def payload(self) -> Mapping[str, Any]: ...  # noqa: D102


class Named(Protocol):
    """Something with an id and a name."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102


class NamedWork(Named, Protocol):
    """A Work with its tasks."""

    @property
    def tasks(self) -> Sequence[Named]: ...  # noqa: D102


def event_tone(event: DescribedEvent) -> EventTone:
    """Return whether an event is good or bad news, or neither."""
    if any(word in event.type for word in _BAD_WORDS) or event.payload.get("status") == "FAILED":
        return "bad"
    return "good" if any(word in event.type for word in _GOOD_WORDS) else "plain"


def names_by_id(works: Iterable[NamedWork]) -> dict[str, str]:
    """Return the names of works and tasks by id."""
    return {one.id: one.name for work in works for one in (work, *work.tasks)}


def event_details(event: DescribedEvent, names: Mapping[str, str]) -> str:
    """Return the payload of an event in one line, with names instead of the ids of works and tasks."""
    values = (names.get(str(value), _shortened(value)) for key, value in event.payload.items() if key != "workflowId")
    return " · ".join(value for value in values if value)


def _shortened(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(text.split())
    return line if len(line) <= _MAX_VALUE_CHARS else f"{line[: _MAX_VALUE_CHARS - 1]}…"
