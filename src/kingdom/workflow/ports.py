"""What the workflow layer needs from outside: a store, agents, git, files, the time and new ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from kingdom.bus import Envelope, EventBus
from kingdom.workflow.domain.events import DomainEvent
from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, McpServer, WorkSpace, WorkTree
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate

if TYPE_CHECKING:
    from kingdom.workflow.store.transactions import InlineHandler

A = TypeVar("A")


class Repository(Protocol[A]):
    """The aggregates of one kind, inside a transaction."""

    async def get(self, item_id: str) -> A:
        """One of them; raises :class:`kingdom.workflow.errors.NotFound`."""

    async def find(self, item_id: str) -> A | None:
        """One of them, or None."""

    async def find_locked(self, item_id: str) -> A | None:
        """One of them, or None; nobody else changes it before this transaction is over."""

    async def save(self, item: A) -> None:
        """Write a new or changed one; raises ``ConcurrentChange`` when somebody else changed it meanwhile."""

    async def delete(self, item_id: str) -> None:
        """Remove one; nothing happens when it is not there."""

    async def with_status(self, *statuses: str) -> list[A]:
        """All in one of these states, the oldest first."""

    async def find_all(self, item_ids: Sequence[str]) -> list[A]:
        """Those of them that are there."""

    async def versions(
        self, *, statuses: Sequence[str] = (), search: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[tuple[str, int]]:
        """Ids with their versions, the newest first; of those in these states, of workflows also by words.

        The words are looked for in name and issue key.
        """

    async def list(self, *, limit: int = 100, after: str | None = None) -> list[A]:
        """The newest first; ``after`` is the id the last page ended with."""


class WorkflowRepository(Repository[A], Protocol[A]):
    """Aggregates that belong to a workflow."""

    async def of_workflow(self, workflow_id: str, rank: int | None = None) -> list[A]:
        """All of one workflow, in their order; ``rank``: only of this Work's sequence (works and checkpoints)."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event with what travels beside its payload."""

    event: DomainEvent
    aggregate_type: str
    aggregate_id: str
    attempt: int | None = None


class WorkflowTransaction(Protocol):
    """One unit of work: everything saved and recorded in it happens, or nothing does."""

    gits: Repository[Git]
    mcp_servers: Repository[McpServer]
    templates: Repository[WorkflowTemplate]
    workflows: Repository[Workflow]
    works: WorkflowRepository[Work]
    reports: WorkflowRepository[Report]
    checkpoints: WorkflowRepository[Checkpoint]
    work_trees: WorkflowRepository[WorkTree]
    work_spaces: WorkflowRepository[WorkSpace]

    def record(self, *told: RecordedEvent) -> None:
        """Have events numbered, kept for the interface, and published, all with the commit."""

    def before_commit(self, action: Callable[[], Awaitable[None]]) -> None:
        """Have something done in this transaction, after the events it records were handled, where that is possible.

        What both change is written once then.
        """

    async def find_with_workflow(self, work_id: str) -> Work | None:
        """A Work, or None; its workflow is read with it, for who will ask for that as well."""

    async def consume(self, event_id: str) -> bool:
        """End an event of the bus with this transaction; False when it is not there to be handled (any more)."""


class WorkflowStore(Protocol):
    """Where workflows are kept."""

    bus: EventBus
    inline: InlineHandler | None  # handles events in the transaction that records them; an engine sets it

    def transaction(self) -> AbstractAsyncContextManager[WorkflowTransaction]:
        """Begin; commits at the end of the block, rolls back when it raises."""

    def reading(self) -> AbstractAsyncContextManager[WorkflowTransaction]:
        """The same for who only looks: nobody who writes waits for it. Nothing is to be saved in it."""

    async def events(self, workflow_id: str | None, after: int, limit: int) -> list[StoredEvent]:
        """What the interface shows: the events of a workflow (or of all) behind a number, in order."""

    async def lock_engine(self) -> EngineLock | None:
        """Take the lock of the engine; None when another has it."""

    async def record_engine(self, owner: str, now: float) -> int:
        """Write down who has the lock; returns how many had it so far."""

    async def engine_owner(self) -> tuple[str, float]:
        """Who has, or had, the lock, and since when."""

    def on_publish(self, listener: Callable[[list[Envelope]], None]) -> Callable[[], None]:
        """Have ``listener`` called with what each commit of this store put on the bus; returns the undo."""


class EngineLock(Protocol):
    """The right to run the workflows of a store; it ends with the process that has it."""

    async def release(self) -> None:
        """Give it back."""

    def drop(self) -> None:
        """Lose it at once."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as an interface sees it. ``sequence`` counts per workflow, without a gap; ``position`` over all."""

    position: int
    workflow_id: str
    sequence: int
    type: str
    payload: Mapping[str, object]
    occurred_at: datetime


class AgentClient(Protocol):
    """The agents of works. What they have to say comes back as events, through the store.

    Events of the agent itself carry the attempt of the Work, those of a query or report that of the Task. Starting,
    sending and writing may be repeated: a run is known by work, task and attempt, and one that is there is not begun
    again.
    """

    async def start(self, work: Work) -> None:
        """Make ready for the queries of a Work; ``AgentStarted`` follows. Raises when it cannot be done here."""

    async def send_query(self, work: Work, task: Task, text: str) -> None:
        """Put a query to the agent; returns at once. ``QueryResponded`` or ``QueryFailed`` follows. May be repeated."""

    async def write_report(self, work: Work, task: Task, report: Report) -> None:
        """Have the report of a task written; returns at once. ``ReportGenerated`` or ``ReportFailed`` follows."""

    async def stop(self, work_id: str) -> None:
        """End the agent of a Work, also one of a former engine; on return nothing of it is alive."""

    async def recover(self, works: Sequence[Work]) -> None:
        """After a restart, before anything else: find the runs of these works again, so that their answers arrive.

        Queries whose answer is still missing are sent again after that; what was found must not be begun twice.
        """

    async def forget(self, work_id: str) -> None:
        """Remove what the runs of a Work left, for a workflow that is deleted. The cost stays in the books."""


@dataclass(frozen=True, slots=True)
class PreparedTree:
    """A worktree that can be worked in."""

    path: str
    branch: str


class GitService(Protocol):
    """Worktrees, commits and resets."""

    async def prepare(self, git: Git, tree: WorkTree) -> PreparedTree:
        """Make the worktree, or find it again; may be repeated. Raises :class:`kingdom.gitops.GitError`."""

    async def commit_all(self, checkpoint: Checkpoint, trees: Sequence[WorkTree], message: str) -> dict[str, Committed]:
        """Commit what each tree has under the checkpoint's refs; all or none. Returns the hash per git id."""

    async def undo(self, checkpoint: Checkpoint, trees: Sequence[WorkTree]) -> None:
        """Take back what a checkpoint that was never finished left."""

    async def reset(self, trees: Sequence[WorkTree], hashes: Mapping[str, str]) -> dict[str, str]:
        """Bring trees to these commits (a git id without one: to its base).

        What would be lost is kept first; returns those rescue refs per git id.
        """

    async def release(self, tree: WorkTree) -> None:
        """Remove a worktree; uncommitted work is kept first. Nothing happens when it is not there."""

    async def merge(self, tree: WorkTree, sources: Sequence[WorkTree], message: str) -> None:
        """Merge what the sources have committed into a tree; may be repeated.

        Raises :class:`kingdom.gitops.GitError` with the files that do not go together; the tree is then as it was.
        """

    async def keep(self, git: Git, checkpoint: Checkpoint) -> None:
        """Hold the commit of a repository for a checkpoint that was copied from another one. May be repeated."""

    async def discard(self, git: Git) -> None:
        """Remove the clone of a repository that was deleted, unless work of workflows is in it. May be repeated."""

    async def prune(self, trees: Sequence[WorkTree]) -> None:
        """At the start of an engine: remove what a crash left half made. These are the trees that are known."""


class WorkFiles(Protocol):
    """The folders of works, with the reports in them."""

    def path(self, work: Work) -> str:
        """Where the folder of a Work is, or will be."""

    async def make(self, space: WorkSpace) -> None:
        """Make the folder; may be repeated."""

    async def remove(self, space: WorkSpace) -> None:
        """Remove the folder with everything in it; may be repeated."""

    async def remove_report(self, report: Report) -> None:
        """Remove the file of a report; may be repeated."""

    async def copy(self, source: WorkSpace, target: WorkSpace) -> None:
        """Give a Work of another workflow the files of this one; may be repeated."""


class QueryRenderer(Protocol):
    """What is really sent."""

    async def text(self, workflow: Workflow, work: Work, task: Task) -> str:
        """The query of a task with its variables filled in.

        Raises :class:`kingdom.workflow.errors.WorkflowError` when one of them is not known.
        """


class Ids(Protocol):
    """New ids."""

    def new(self, kind: str) -> str:
        """An id nobody has: ``<kind>-…``, later ones sort later."""


class Clock(Protocol):
    """The time."""

    def __call__(self) -> datetime:
        """Now, with a time zone."""
