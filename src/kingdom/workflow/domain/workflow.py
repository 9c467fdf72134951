"""A WorkflowTemplate, and the Workflow that is created from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from kingdom.workflow.domain.landing import LandAgain, LandPlan
from kingdom.workflow.domain.refusals import refusal, transition_refusal
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import (
    WORKFLOW_ACTIVE_STATUSES,
    WORKFLOW_OVER_STATUSES,
    WORKFLOW_TRANSITIONS,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
)
from kingdom.workflow.domain.work import DEFAULT_ENGINE, DEFAULT_RETRIES
from kingdom.workflow.errors import IllegalTransition, InvalidPlan, NotModifiable

OnFailure = Literal["pause", "fail"]
DEFAULT_ON_FAILURE: Final = "pause"
START: Final = "start"  # in ``after``, if no Work has this name: wait for nothing


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task of a plan."""

    name: str
    query: str
    outline: tuple[str, ...] = ()
    retries: int = DEFAULT_RETRIES


@dataclass(frozen=True, slots=True)
class WorkDefinition:
    """A Work of a plan."""

    name: str
    tasks: tuple[TaskDefinition, ...]
    engine: str = DEFAULT_ENGINE
    model: str | None = None
    engine_options: Mapping[str, object] = field(default_factory=dict)
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    after: tuple[str, ...] = ()  # names of works it waits for; START: none; empty: all before it
    merge: bool = False
    pause_after: bool = False
    continues: str | None = None  # the name of a Work whose conversation it goes on with


@dataclass(slots=True)
class WorkflowTemplate:
    """A plan that workflows are created from."""

    id: str
    name: str
    works: tuple[WorkDefinition, ...]
    description: str = ""
    git_refs: tuple[GitRef, ...] = ()
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    on_failure: OnFailure = DEFAULT_ON_FAILURE
    land: LandPlan | None = None  # how its workflows are landed when they are completed; None: by hand
    version: int = 0

    def __post_init__(self) -> None:
        check_plan((work.name, work.after) for work in self.works)
        for work in self.works:
            check_tasks(work.name, work.tasks)

    def remove_git(self, git_id: str) -> bool:
        """Remove references to a deleted repository; return whether there were any."""
        kept = tuple(ref for ref in self.git_refs if ref.git_id != git_id)
        changed, self.git_refs = kept != self.git_refs, kept
        return changed

    def remove_mcp_server(self, server_id: str) -> bool:
        """Remove references to an unregistered MCP server; return whether there were any."""
        before = self.mcp_server_refs, self.works
        self.mcp_server_refs = _without(self.mcp_server_refs, server_id)
        self.works = tuple(_work_without(work, server_id) for work in self.works)
        return (self.mcp_server_refs, self.works) != before


def check_merge(*, merge: bool, after: Sequence[str]) -> None:
    """Raise :class:`InvalidPlan` if a Work merges and does not name the works to merge."""
    if merge and len(after) < 2:
        raise InvalidPlan("merge needs at least two works in `after`")


def check_continues(name: str, continues: str | None, names: Sequence[str]) -> None:
    """Raise :class:`InvalidPlan` if the Work that a Work continues is itself, or none of ``names``."""
    if continues == name:
        raise InvalidPlan("a work cannot continue itself: name a work before it")
    if continues is not None and continues not in names:
        raise InvalidPlan(f"there is no work {continues!r}: {', '.join(names)}")


def check_tasks(work: str, tasks: Sequence[object]) -> None:
    """Raise :class:`InvalidPlan` if a Work has no task."""
    if not tasks:
        raise InvalidPlan(f"work {work!r} has no task")


def check_plan(works: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Raise :class:`InvalidPlan` for a duplicate name, an unknown name in ``after``, or a dependency cycle.

    ``works`` are names with their ``after``, in order. A Work without ``after`` waits for all before it; one after
    :data:`START` waits for none.
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


# The plan may be changed before the workflow runs, and while it is stopped. A completed one takes more works.
MODIFIABLE_STATUSES: Final = frozenset(
    {
        WorkflowStatus.CREATED,
        WorkflowStatus.READY,
        WorkflowStatus.PAUSED,
        WorkflowStatus.FAILED,
        WorkflowStatus.COMPLETED,
    }
)


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """How a workflow is being resumed. It is stored, so that recovery can finish a resume after a crash."""

    mode: Literal["reset", "in place"]
    checkpoint_id: str | None = None  # None: reset to before the first Work
    hold: bool = False  # stay PAUSED afterwards, so that the plan can be changed


_REOPENED: Final = "works were added after it was completed"
_RESET_TO_START: Final = ResumePlan("reset")


@dataclass(slots=True)
class Workflow:
    """One run of a plan. Its works are aggregates of their own."""

    id: str
    name: str
    created_at: datetime
    template_id: str | None = None
    issue_key: str | None = None
    description: str = ""
    git_refs: tuple[GitRef, ...] = ()
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    variables: Mapping[str, object] = field(default_factory=dict)
    on_failure: OnFailure = DEFAULT_ON_FAILURE
    status: WorkflowStatus = WorkflowStatus.CREATED
    reason: str | None = None  # why it is PAUSED or FAILED, or COMPLETED and not landed yet
    work_statuses: dict[str, WorkStatus] = field(default_factory=dict)  # by work id; stored with the works
    work_tree_statuses: dict[str, WorkTreeStatus] = field(default_factory=dict)  # by git id
    forked_from: str | None = None  # the checkpoint of another workflow it was forked from
    resuming: ResumePlan | None = None  # of a PAUSED one: the resume that failed, to be repeated
    review: str | None = None  # the reason to pause as soon as no Work runs
    prepare_only: bool = False  # whether it stays READY until it is started again
    land: LandPlan | None = None  # how it is landed when it is completed; None: by hand
    landing: bool = False  # of a COMPLETED one: whether it is being landed
    land_again: LandAgain | None = None  # of a COMPLETED one: when that is tried again
    version: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it is COMPLETED or CANCELLED."""
        return self.status in WORKFLOW_OVER_STATUSES

    @property
    def is_active(self) -> bool:
        """Whether it needs an engine to go on."""
        return self.status in WORKFLOW_ACTIVE_STATUSES or self.landing

    # ── transitions ───────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        """Start making its worktrees."""
        self._to(WorkflowStatus.PREPARING)

    def ready(self) -> None:
        """Mark its worktrees as made."""
        self._to(WorkflowStatus.READY)

    def start(self) -> None:
        """Run its works."""
        self._to(WorkflowStatus.RUNNING)
        self.reason = None

    def pause(self, reason: str | None = None) -> None:
        """Stop until a person resumes or cancels it. One that is over cannot be paused."""
        if self.is_over:
            raise self._refused(WorkflowStatus.PAUSED)
        self._to(WorkflowStatus.PAUSED)
        self.reason, self.review, self.resuming = reason, None, None

    def resume(self, plan: ResumePlan = _RESET_TO_START) -> None:
        """Start resuming it."""
        self._to(WorkflowStatus.RESUMING)
        self.reason, self.review, self.resuming = None, None, plan
        self.landing, self.land_again = False, None

    def resumed(self) -> None:
        """Run its works again, after a resume."""
        self._to(WorkflowStatus.RUNNING)
        self.resuming = None

    def complete(self) -> None:
        """Complete it; if it is to be landed, that comes next."""
        self._to(WorkflowStatus.COMPLETED)
        self.landing = self.land is not None

    def end_landing(self, again: LandAgain | None = None, reason: str | None = None) -> None:
        """Note that it is landed, or when that is tried again and why."""
        self.landing, self.land_again, self.reason = False, again, reason

    def reopen(self) -> None:
        """Pause a completed workflow that got more works."""
        self._to(WorkflowStatus.PAUSED)
        self.reason, self.landing, self.land_again = _REOPENED, False, None

    def fail(self, reason: str) -> None:
        """Fail it: it cannot go on without a person."""
        self._to(WorkflowStatus.FAILED)
        self.reason, self.review, self.resuming = reason, None, None

    def cancel(self) -> None:
        """Cancel it for good."""
        self._to(WorkflowStatus.CANCELLED)
        self.review = self.resuming = None

    # ── statuses of its parts ─────────────────────────────────────────────────────────────────────────────────

    def work_changed(self, work_id: str, status: WorkStatus) -> None:
        """Store the status of a Work."""
        self.work_statuses[work_id] = status

    def work_tree_changed(self, git_id: str, status: WorkTreeStatus) -> None:
        """Store the status of a worktree."""
        self.work_tree_statuses[git_id] = status

    # ── the plan ──────────────────────────────────────────────────────────────────────────────────────────────

    def check_modifiable(self) -> None:
        """Raise :class:`NotModifiable` if its plan cannot be changed now."""
        if self.status not in MODIFIABLE_STATUSES:
            raise NotModifiable(refusal(self.name, self.status, "cannot be changed now"))

    def change_git_refs(self, refs: Iterable[GitRef]) -> tuple[list[str], list[str]]:
        """Replace its repositories; return the ids of those added and of those removed."""
        self.check_modifiable()
        before, self.git_refs = {ref.git_id for ref in self.git_refs}, tuple(refs)
        after = {ref.git_id for ref in self.git_refs}
        return sorted(after - before), sorted(before - after)

    def change_mcp_server_refs(self, refs: Iterable[McpServerRef]) -> tuple[list[str], list[str]]:
        """Replace its MCP servers, from the next Work on; return the ids of those added and of those removed."""
        self.check_modifiable()
        before, self.mcp_server_refs = {ref.mcp_server_id for ref in self.mcp_server_refs}, tuple(refs)
        after = {ref.mcp_server_id for ref in self.mcp_server_refs}
        return sorted(after - before), sorted(before - after)

    def check_may_become(self, wanted: WorkflowStatus) -> None:
        """Raise :class:`IllegalTransition` if its status cannot change to this one now."""
        if wanted not in WORKFLOW_TRANSITIONS[self.status]:
            raise self._refused(wanted)

    def _to(self, wanted: WorkflowStatus) -> None:
        self.check_may_become(wanted)
        self.status = wanted

    def _refused(self, wanted: WorkflowStatus) -> IllegalTransition:
        text = transition_refusal(self.name, self.status, wanted)
        return IllegalTransition("workflow", self.id, self.status, wanted, text)


def is_reopened(workflow: Workflow) -> bool:
    """Whether it is paused only because it got more works after it was completed."""
    return workflow.status is WorkflowStatus.PAUSED and workflow.reason == _REOPENED
