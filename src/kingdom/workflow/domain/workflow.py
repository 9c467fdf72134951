"""A Workflow: works on repositories, from the first to the last, with the state of all of them in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from kingdom.workflow.domain.errors import NotModifiable
from kingdom.workflow.domain.sources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import (
    WORKFLOW,
    WORKFLOW_OVER,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
    move,
)
from kingdom.workflow.domain.template import OnFailure

# The plan may be changed before it runs, and while nobody works on it.
MODIFIABLE: Final = frozenset(
    {WorkflowStatus.CREATED, WorkflowStatus.READY, WorkflowStatus.PAUSED, WorkflowStatus.FAILED}
)


@dataclass(frozen=True, slots=True)
class Resuming:
    """Where a workflow is being brought back to, so that a crash on the way is finished."""

    mode: Literal["reset", "in place"]
    checkpoint_id: str | None = None  # None: to before the first Work


_TO_THE_START: Final = Resuming("reset")


@dataclass(slots=True)
class Workflow:
    """One run of a plan. Its works are aggregates of their own; what it knows of them is told by events."""

    id: str
    name: str
    created_at: datetime
    template_id: str | None = None
    issue_key: str | None = None
    description: str = ""
    git_refs: tuple[GitRef, ...] = ()
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    variables: Mapping[str, object] = field(default_factory=dict)
    on_failure: OnFailure = "pause"
    status: WorkflowStatus = WorkflowStatus.CREATED
    reason: str | None = None  # why it is PAUSED or FAILED
    work_statuses: dict[str, WorkStatus] = field(default_factory=dict)  # by work id
    work_tree_statuses: dict[str, WorkTreeStatus] = field(default_factory=dict)  # by git id
    forked_from: str | None = None  # a checkpoint of another workflow
    resuming: Resuming | None = None
    review: str | None = None  # why it pauses as soon as no Work runs any more
    prepare_only: bool = False  # it stays READY until it is started once more
    version: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.status in WORKFLOW_OVER

    # ── its life ──────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        """Its worktrees are being made."""
        self._to(WorkflowStatus.PREPARING)

    def ready(self) -> None:
        """Its worktrees are there."""
        self._to(WorkflowStatus.READY)

    def start(self) -> None:
        """Its works run."""
        self._to(WorkflowStatus.RUNNING)
        self.reason = None

    def pause(self, reason: str | None = None) -> None:
        """It stops where it is, until a person says more."""
        self._to(WorkflowStatus.PAUSED)
        self.reason, self.review, self.resuming = reason, None, None

    def resume(self, plan: Resuming = _TO_THE_START) -> None:
        """It is being brought back to where it goes on from."""
        self._to(WorkflowStatus.RESUMING)
        self.reason, self.review, self.resuming = None, None, plan

    def resumed(self) -> None:
        """Its works run again."""
        self._to(WorkflowStatus.RUNNING)
        self.resuming = None

    def complete(self) -> None:
        """All works are done."""
        self._to(WorkflowStatus.COMPLETED)

    def fail(self, reason: str) -> None:
        """It cannot go on by itself."""
        self._to(WorkflowStatus.FAILED)
        self.reason, self.review, self.resuming = reason, None, None

    def cancel(self) -> None:
        """It will not be finished."""
        self._to(WorkflowStatus.CANCELLED)
        self.review = self.resuming = None

    # ── what it knows of its parts ────────────────────────────────────────────────────────────────────────────

    def work_changed(self, work_id: str, status: WorkStatus) -> None:
        """A Work has another status."""
        self.work_statuses[work_id] = status

    def work_tree_changed(self, git_id: str, status: WorkTreeStatus) -> None:
        """A worktree has another status."""
        self.work_tree_statuses[git_id] = status

    @property
    def trees_ready(self) -> bool:
        """Whether every repository of it can be worked in."""
        return all(self.work_tree_statuses.get(ref.git_id) is WorkTreeStatus.READY for ref in self.git_refs)

    # ── the plan ──────────────────────────────────────────────────────────────────────────────────────────────

    def check_modifiable(self) -> None:
        """Raise :class:`NotModifiable` when its plan cannot be changed now."""
        if self.status not in MODIFIABLE:
            advice = "pause it first" if not self.is_over else "it is over: make a new one, or fork a checkpoint"
            raise NotModifiable(f"workflow {self.id} is {self.status}, its plan cannot be changed now: {advice}")

    def change_git_refs(self, refs: Iterable[GitRef]) -> tuple[list[str], list[str]]:
        """Use other repositories; returns the ids of those added and of those removed."""
        self.check_modifiable()
        before, self.git_refs = {ref.git_id for ref in self.git_refs}, tuple(refs)
        after = {ref.git_id for ref in self.git_refs}
        return sorted(after - before), sorted(before - after)

    def change_mcp_server_refs(self, refs: Iterable[McpServerRef]) -> tuple[list[str], list[str]]:
        """Use other MCP servers, from the next Work on; returns the ids of those added and of those removed."""
        self.check_modifiable()
        before, self.mcp_server_refs = {ref.mcp_server_id for ref in self.mcp_server_refs}, tuple(refs)
        after = {ref.mcp_server_id for ref in self.mcp_server_refs}
        return sorted(after - before), sorted(before - after)

    def _to(self, wanted: WorkflowStatus) -> None:
        self.status = move("workflow", self.id, WORKFLOW, self.status, wanted)
