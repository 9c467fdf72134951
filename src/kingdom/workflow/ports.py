"""What the workflow layer needs: a store, agents, git, files, the time and new ids."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kingdom.bus import Envelope, EventBus
from kingdom.workflow.domain.events import DomainEvent
from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, WorkSpace, WorkTree
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import Workflow

if TYPE_CHECKING:
    from kingdom.workflow.store.holds import EngineHolds, Holder
    from kingdom.workflow.store.transactions import InlineHandler, WorkflowTransaction


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event with its aggregate and attempt."""

    event: DomainEvent
    aggregate_type: str
    aggregate_id: str
    attempt: int | None = None


class WorkflowStore(Protocol):
    """Where workflows are stored."""

    bus: EventBus
    inline: InlineHandler | None  # handles events in the transaction that records them; set by an engine
    holds: EngineHolds | None  # which workflows the engine of this process holds; None: all, if it runs

    def transaction(self) -> AbstractAsyncContextManager[WorkflowTransaction]:
        """Open a transaction: commit at the end of the block, roll back if it raises."""

    def reading(self) -> AbstractAsyncContextManager[WorkflowTransaction]:
        """Open a read-only transaction; writers do not wait for it."""

    async def events(self, workflow_id: str | None, after: int, limit: int) -> list[StoredEvent]:
        """Return the events of a workflow after a sequence number, or of all after a position, in order."""

    async def last_event_number(self, workflow_id: str | None) -> int:
        """Return the sequence number of a workflow's last event, or the last position of all; 0 if there is none."""

    def share(self, home: Path, seconds: float) -> None:
        """Let an engine of this home run beside those of other homes, with leases of ``seconds``, if it can be."""

    async def lock_engine(self) -> EngineLock | None:
        """Take the engine lock; return None if another process has it."""

    async def engine_running(self) -> bool:
        """Return whether a process has the engine lock."""

    async def holder(self, workflow_id: str) -> Holder | None:
        """Return the engine that holds a workflow, if engines share the store."""

    async def record_engine(self, owner: str, now: float) -> int:
        """Record who has the lock; return how many have had it."""

    async def engine_owner(self) -> tuple[str, float]:
        """Return who has, or had, the lock, and since when."""

    def on_publish(self, listener: Callable[[list[Envelope]], None]) -> Callable[[], None]:
        """Call ``listener`` with the envelopes that each commit publishes; return the function that undoes this."""


class EngineLock(Protocol):
    """The right to run the workflows of a store. It ends with the process that has it."""

    async def release(self) -> None:
        """Release it."""

    def drop(self) -> None:
        """Lose it at once."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it is stored. ``sequence`` counts per workflow, ``position`` over all, both without gaps."""

    position: int
    workflow_id: str
    sequence: int
    type: str
    payload: Mapping[str, object]
    occurred_at: datetime
    attempt: int | None = None  # of the Work or Task it tells of


@dataclass(frozen=True, slots=True)
class NotLanded:
    """Why a workflow could not be landed."""

    reason: str
    away: bool  # whether a remote was away: a later try may succeed


class LandCompleted(Protocol):
    """Lands a completed workflow as its plan says."""

    async def __call__(self, workflow_id: str, *, patient: bool) -> NotLanded | None:
        """Return None if it is landed. ``patient`` waits for a remote that is away for a while."""


class AgentClient(Protocol):
    """The agents of works. Their results come back as events, through the store.

    Events of the agent carry the attempt of the Work, those of a query or report the attempt of the Task. Every call
    may be repeated: a run is identified by work, task and attempt, and an existing run is not started again.
    """

    async def start(self, work: Work) -> None:
        """Prepare for the queries of a Work; raise if the agent cannot run here.

        ``AgentStarted`` follows when its first run has started.
        """

    async def send_query(self, work: Work, task: Task, text: str) -> None:
        """Send a query and return at once; ``QueryResponded`` or ``QueryFailed`` follows."""

    async def write_report(self, work: Work, task: Task, report: Report) -> None:
        """Start the report of a task and return at once; ``ReportGenerated`` or ``ReportFailed`` follows."""

    async def stop(self, work_id: str, *, record: bool = True) -> None:
        """Stop the agent of a Work, also one that a former engine started; on return it is gone.

        ``AgentStopped`` follows, unless the caller records it (``record=False``).
        """

    async def recover(self, works: Sequence[Work]) -> None:
        """After a restart, before any other call: find the runs of these works, so that their answers arrive.

        Queries without an answer are sent again afterwards; a run that was found must not be started twice.
        """

    async def forget(self, work_id: str) -> None:
        """Delete the files of a Work's runs, for a workflow that is deleted. The cost stays in the ledger."""

    async def works_here(self) -> set[str]:
        """Return the ids of the works that have runs on this machine."""

    async def stop_others(self, work_ids: Container[str], reason: str) -> None:
        """Stop every run on this machine that is of none of these works. Nothing is recorded."""


@dataclass(frozen=True, slots=True)
class PreparedTree:
    """A worktree that is ready."""

    path: str
    branch: str
    started_at: str | None = None  # the commit its branch started from


class GitService(Protocol):
    """Worktrees, commits and resets."""

    async def check(self, url: str) -> None:
        """Try a repository; raise :class:`kingdom.gitops.GitError` if it cannot be used."""

    async def prepare(self, git: Git, tree: WorkTree) -> PreparedTree:
        """Create the worktree, or find it again. Raise :class:`kingdom.gitops.GitError`."""

    async def commit_all(self, checkpoint: Checkpoint, trees: Sequence[WorkTree], message: str) -> dict[str, Committed]:
        """Commit the content of each tree under the checkpoint's refs, all or none; return commits by git id."""

    async def undo(self, checkpoint: Checkpoint, trees: Sequence[WorkTree]) -> None:
        """Undo a checkpoint that was never finished."""

    async def reset(self, trees: Sequence[WorkTree], hashes: Mapping[str, str]) -> dict[str, str]:
        """Reset trees to these commits; a tree without one to its base.

        What would be lost is kept first; return those rescue refs by git id.
        """

    def is_here(self, tree: WorkTree) -> bool:
        """Whether this machine has the files of a worktree, or it has none."""

    async def release(self, tree: WorkTree, *, delete_branch: bool = False) -> None:
        """Remove a worktree if it exists; uncommitted work is kept under a rescue ref."""

    async def forget(self, git: Git, workflow_id: str) -> None:
        """Delete all refs of a workflow in a repository: branches, checkpoints, rescues. May be repeated."""

    async def merge(self, tree: WorkTree, sources: Sequence[WorkTree], message: str) -> None:
        """Merge the commits of the sources into a tree. May be repeated.

        Raise :class:`kingdom.gitops.GitError` with the conflicting files; the tree does not change then.
        """

    async def keep(self, git: Git, checkpoint: Checkpoint) -> None:
        """Hold the commit of a repository under the ref of a copied checkpoint. May be repeated."""

    async def discard(self, git: Git) -> None:
        """Delete the clone of a deleted repository, unless it holds work of workflows. May be repeated."""

    async def prune(self, trees: Sequence[WorkTree]) -> None:
        """When an engine starts: remove what a crash left half made. ``trees`` are all known trees."""


class WorkFiles(Protocol):
    """The workspaces of works, with their reports."""

    def path(self, work: Work) -> str:
        """Return the path of a Work's folder, which need not exist yet."""

    async def make(self, space: WorkSpace) -> None:
        """Create the folder. May be repeated."""

    async def remove(self, space: WorkSpace) -> None:
        """Delete the folder and its content. May be repeated."""

    async def copy(self, source: WorkSpace, target: WorkSpace) -> None:
        """Copy a workspace to one of another workflow. May be repeated."""

    async def read_report(self, path: str) -> str:
        """Return the text of a report."""

    async def write_report(self, space: WorkSpace, task: Task, text: str) -> str:
        """Write the report of a task that another machine has; return its path. May be repeated."""


class QueryRenderer(Protocol):
    """Renders queries."""

    async def text(self, workflow: Workflow, work: Work, task: Task) -> str:
        """Return the query of a task with its variables filled in.

        Raise :class:`kingdom.workflow.errors.WorkflowError` for an unknown variable.
        """

    def check(self, workflow: Workflow, works: Sequence[Work], changed: Sequence[Work]) -> None:
        """Raise :class:`kingdom.workflow.errors.WorkflowError` if the queries of ``changed`` use unknown variables.

        ``works`` is the whole plan.
        """


class Ids(Protocol):
    """Creates ids."""

    def new(self, kind: str) -> str:
        """Return a unique id, ``<kind>-…``; later ids sort later."""


class Clock(Protocol):
    """The time."""

    def __call__(self) -> datetime:
        """Return the current time, with a time zone."""
