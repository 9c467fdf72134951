"""A WorkflowTemplate, and the Workflow that is created from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import (
    WORKFLOW_OVER_STATUSES,
    WORKFLOW_TRANSITIONS,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
    check_transition,
)
from kingdom.workflow.errors import InvalidPlan, NotModifiable

# A WorkflowTemplate: the plan workflows are made from.


OnFailure = Literal["pause", "fail"]
START: Final = "start"  # in ``after``: the start of the workflow, where no Work is called so


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task of the plan."""

    name: str
    query: str
    outline: tuple[str, ...] = ()
    retries: int = 1


@dataclass(frozen=True, slots=True)
class WorkDefinition:
    """A Work of the plan."""

    name: str
    tasks: tuple[TaskDefinition, ...]
    engine: str = "claude"
    model: str | None = None
    engine_options: Mapping[str, object] = field(default_factory=dict)
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    after: tuple[str, ...] = ()  # names of works it waits for, or START: nobody; none: all before it
    merge: bool = False
    pause_after: bool = False


@dataclass(slots=True)
class WorkflowTemplate:
    """A plan with a name."""

    id: str
    name: str
    works: tuple[WorkDefinition, ...]
    description: str = ""
    git_refs: tuple[GitRef, ...] = ()
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    on_failure: OnFailure = "pause"
    version: int = 0

    def __post_init__(self) -> None:
        check_plan((work.name, work.after) for work in self.works)
        for work in self.works:
            check_tasks(work.name, work.tasks)

    def remove_git(self, git_id: str) -> bool:
        """Forget a repository that was deleted; False when the template has no such reference."""
        kept = tuple(ref for ref in self.git_refs if ref.git_id != git_id)
        changed, self.git_refs = kept != self.git_refs, kept
        return changed

    def remove_mcp_server(self, server_id: str) -> bool:
        """Forget an MCP server that was unregistered; False when the template has no such reference."""
        before = self.mcp_server_refs, self.works
        self.mcp_server_refs = _without(self.mcp_server_refs, server_id)
        self.works = tuple(_work_without(work, server_id) for work in self.works)
        return (self.mcp_server_refs, self.works) != before


def check_tasks(work: str, tasks: Sequence[object]) -> None:
    """Raise :class:`InvalidPlan` when a Work has nothing to do."""
    if not tasks:
        raise InvalidPlan(f"work {work!r} has no task")


def check_plan(works: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Raise :class:`InvalidPlan` when names stand twice, ``after`` names no Work, or works wait for each other.

    The works come in their order: one that does not say what it is after waits for all before it, and one that is
    after :data:`START` waits for nobody.
    """
    waits: dict[str, tuple[str, ...]] = {}
    for name, after in works:
        if name in waits:
            raise InvalidPlan(f"two works are called {name!r}: each needs a name of its own")
        waits[name] = after or tuple(waits)
    if not waits:
        raise InvalidPlan("a plan needs at least one work")
    for name, others in waits.items():
        if unknown := [other for other in others if other not in waits and other != START]:
            raise InvalidPlan(f"work {name!r} is after {unknown[0]!r}, and there is none: {', '.join(waits)}")
        waits[name] = tuple(other for other in others if other in waits)
    done: set[str] = set()
    while len(done) < len(waits):
        ready = [name for name, others in waits.items() if name not in done and done.issuperset(others)]
        if not ready:
            stuck = ", ".join(sorted(set(waits) - done))
            raise InvalidPlan(f"these works wait for each other: {stuck}")
        done.update(ready)


def _without(refs: tuple[McpServerRef, ...], server_id: str) -> tuple[McpServerRef, ...]:
    return tuple(ref for ref in refs if ref.mcp_server_id != server_id)


def _work_without(work: WorkDefinition, server_id: str) -> WorkDefinition:
    kept = _without(work.mcp_server_refs, server_id)
    if kept == work.mcp_server_refs:
        return work
    return replace(work, mcp_server_refs=kept)


# A Workflow: works on repositories, from the first to the last, with the state of all of them in one place.


# The plan may be changed before it runs, and while nobody works on it.
MODIFIABLE_STATUSES: Final = frozenset(
    {WorkflowStatus.CREATED, WorkflowStatus.READY, WorkflowStatus.PAUSED, WorkflowStatus.FAILED}
)


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """Where a workflow is being brought back to, so that a crash on the way is finished."""

    mode: Literal["reset", "in place"]
    checkpoint_id: str | None = None  # None: to before the first Work


_RESET_TO_START: Final = ResumePlan("reset")


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
    resuming: ResumePlan | None = None
    review: str | None = None  # why it pauses as soon as no Work runs any more
    prepare_only: bool = False  # it stays READY until it is started once more
    version: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.status in WORKFLOW_OVER_STATUSES

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

    def resume(self, plan: ResumePlan = _RESET_TO_START) -> None:
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
        if self.status not in MODIFIABLE_STATUSES:
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
        self.status = check_transition("workflow", self.id, WORKFLOW_TRANSITIONS, self.status, wanted)
