"""What workflows use (repositories, MCP servers) and what they have on disk (worktrees, workspaces, checkpoints)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from kingdom.workflow.domain.statuses import WORKTREE_TRANSITIONS, WorkTreeStatus, check_transition
from kingdom.workflow.errors import StillInUse

# ── what workflows use ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class GitRef:
    """A repository of a template or workflow, with the base of its worktree."""

    git_id: str
    base: str | None = None  # None: the default branch


@dataclass(frozen=True, slots=True)
class McpServerRef:
    """An MCP server of a template, workflow or Work; ``env`` overrides the server's own."""

    mcp_server_id: str
    env: Mapping[str, str] = field(default_factory=dict)  # values may be references: ${NAME}


@dataclass(slots=True)
class UsedSource:
    """Something workflows use, with the workflows that use it."""

    id: str
    name: str
    used_by: set[str] = field(default_factory=set)  # workflow ids
    version: int = 0

    def add_workflow(self, workflow_id: str) -> bool:
        """Register a use; return False if it was registered already."""
        if workflow_id in self.used_by:
            return False
        self.used_by.add(workflow_id)
        return True

    def remove_workflow(self, workflow_id: str) -> bool:
        """Release a use; return False if there was none."""
        if workflow_id not in self.used_by:
            return False
        self.used_by.remove(workflow_id)
        return True

    def check_unused(self) -> None:
        """Raise :class:`StillInUse` if a workflow uses it."""
        if self.used_by:
            raise StillInUse(
                f"{self.name} ({self.id}) is used by {len(self.used_by)} workflows, such as {min(self.used_by)}: "
                "cancel or delete them first"
            )


@dataclass(slots=True)
class Git(UsedSource):
    """A git repository, by its URL."""

    url: str = ""


@dataclass(slots=True)
class McpServer(UsedSource):
    """An MCP server for agents: a command to run, or a URL to connect to."""

    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # values may be references: ${NAME}


# ── what they have on disk ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class WorkTree:
    """A worktree of one repository, on a branch of the workflow."""

    id: str
    workflow_id: str
    git_id: str
    base: str | None = None
    branch: str | None = None
    path: str | None = None
    work_id: str | None = None  # for a tree of its own of a Work that may run beside others
    status: WorkTreeStatus = WorkTreeStatus.CREATING
    error: str | None = None
    started_at: str | None = None  # the commit its branch started from; a copy on another machine starts there, too
    version: int = 0

    def ready(self, path: str, branch: str, started_at: str | None = None) -> None:
        """Mark it as ready to work in."""
        self._to(WorkTreeStatus.READY)
        self.path, self.branch, self.error = path, branch, None
        self.started_at = started_at or self.started_at

    def lose(self, reason: str) -> None:
        """Mark that its files are on a machine that is gone; one that was to be released is."""
        if self.status is WorkTreeStatus.PENDING_RELEASE:
            self.released()
        elif self.status is WorkTreeStatus.READY:
            self.fail(reason)

    def fail(self, error: str) -> None:
        """Mark that it could not be made."""
        self._to(WorkTreeStatus.FAILED)
        self.error = error

    def retry_creation(self) -> None:
        """Create a failed worktree again."""
        self._to(WorkTreeStatus.CREATING)

    def mark_for_release(self) -> None:
        """Release it when the workflow ends; until then the files stay."""
        self._to(WorkTreeStatus.PENDING_RELEASE)

    def reclaim(self) -> None:
        """Undo :meth:`mark_for_release`; creating it again checks that its files are still there."""
        self._to(WorkTreeStatus.CREATING)

    def released(self) -> None:
        """Mark that its files are removed."""
        self._to(WorkTreeStatus.RELEASED)

    def _to(self, wanted: WorkTreeStatus) -> None:
        self.status = check_transition("worktree", self.id, WORKTREE_TRANSITIONS, self.status, wanted)


@dataclass(slots=True)
class WorkSpace:
    """The folder of one Work: its reports and its agents' results."""

    id: str
    workflow_id: str
    work_id: str
    path: str
    version: int = 0


class Committed(NamedTuple):
    """A commit and its git tree."""

    commit: str
    tree: str


@dataclass(slots=True)
class Checkpoint:
    """The result of a Work: a commit in each repository.

    It is saved twice. First as an intent, without hashes: the commits name it, so that a crash in between can be
    finished or undone. Then with the hashes, when all commits are made.
    """

    id: str
    workflow_id: str
    work_id: str
    work_sequence: int
    work_attempt: int
    created_at: datetime
    hashes: Mapping[str, str] = field(default_factory=dict)  # git id: commit
    trees: Mapping[str, str] = field(
        default_factory=dict
    )  # git id: tree of that commit; not recorded by older versions
    complete: bool = False
    valid: bool = True  # False once the workflow was reset to before it
    number: int = 0  # counts the finished checkpoints of its workflow: their order, whatever the clocks say
    version: int = 0

    def finish(self, made: Mapping[str, Committed], number: int) -> None:
        """Store the commits and mark it as complete, the ``number``-th of its workflow."""
        self.number = number
        self.hashes = {git_id: one.commit for git_id, one in made.items()}
        self.trees = {git_id: one.tree for git_id, one in made.items()}
        self.complete = True

    def invalidate(self) -> None:
        """Mark that the workflow was reset to before it. The commits stay under their refs."""
        self.valid = False
