"""What workflows use (repositories, MCP servers) and what they have on disk (worktrees, workspaces, checkpoints)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from kingdom.workflow.domain.statuses import WORKTREE_TRANSITIONS, WorkTreeStatus, check_transition
from kingdom.workflow.errors import StillInUse

# What workflows draw on: repositories and MCP servers, and who uses them.


@dataclass(frozen=True, slots=True)
class GitRef:
    """A repository of a template or workflow, and the branch its worktree starts from."""

    git_id: str
    base: str | None = None  # None: the default branch


@dataclass(frozen=True, slots=True)
class McpServerRef:
    """An MCP server of a template, workflow or Work; ``env`` overrides the server's own."""

    mcp_server_id: str
    env: Mapping[str, str] = field(default_factory=dict)  # values may be references: ${NAME}


@dataclass(slots=True)
class UsedSource:
    """Something workflows use. Registering and releasing a use may be repeated."""

    id: str
    name: str
    used_by: set[str] = field(default_factory=set)  # workflow ids
    version: int = 0

    def add_workflow(self, workflow_id: str) -> bool:
        """Register a use; False when it was registered already."""
        if workflow_id in self.used_by:
            return False
        self.used_by.add(workflow_id)
        return True

    def remove_workflow(self, workflow_id: str) -> bool:
        """Release a use; False when there was none."""
        if workflow_id not in self.used_by:
            return False
        self.used_by.remove(workflow_id)
        return True

    def check_unused(self) -> None:
        """Raise :class:`StillInUse` when a workflow uses it."""
        if self.used_by:
            raise StillInUse(
                f"{self.name} ({self.id}) is used by {len(self.used_by)} workflows, such as {min(self.used_by)}: "
                "cancel or delete them first"
            )


@dataclass(slots=True)
class Git(UsedSource):
    """A repository."""

    url: str = ""


@dataclass(slots=True)
class McpServer(UsedSource):
    """An MCP server an agent can be given: a command to run, or a URL to speak to."""

    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # values may be references: ${NAME}


# What a workflow has on disk: worktrees, workspaces and checkpoints.


@dataclass(slots=True)
class WorkTree:
    """The files of one repository, on a branch of the workflow's own."""

    id: str
    workflow_id: str
    git_id: str
    base: str | None = None
    branch: str | None = None
    path: str | None = None
    work_id: str | None = None  # of a Work that runs beside others, and has a tree of its own
    status: WorkTreeStatus = WorkTreeStatus.CREATING
    error: str | None = None
    version: int = 0

    def ready(self, path: str, branch: str) -> None:
        """It can be worked in."""
        self._to(WorkTreeStatus.READY)
        self.path, self.branch, self.error = path, branch, None

    def fail(self, error: str) -> None:
        """It could not be made."""
        self._to(WorkTreeStatus.FAILED)
        self.error = error

    def retry_creation(self) -> None:
        """After it could not be made."""
        self._to(WorkTreeStatus.CREATING)

    def mark_for_release(self) -> None:
        """Its repository was taken out of the workflow; the files stay until the workflow ends."""
        self._to(WorkTreeStatus.PENDING_RELEASE)

    def reclaim(self) -> None:
        """Its repository came back before it was released; whether its files are still there is looked at."""
        self._to(WorkTreeStatus.CREATING)

    def released(self) -> None:
        """Its files are gone."""
        self._to(WorkTreeStatus.RELEASED)

    def _to(self, wanted: WorkTreeStatus) -> None:
        self.status = check_transition("worktree", self.id, WORKTREE_TRANSITIONS, self.status, wanted)


@dataclass(slots=True)
class WorkSpace:
    """The folder of one Work: its reports, and what its agent is given."""

    id: str
    workflow_id: str
    work_id: str
    path: str
    version: int = 0


class Committed(NamedTuple):
    """A commit, and the files it has."""

    commit: str
    tree: str


@dataclass(slots=True)
class Checkpoint:
    """What a Work left: a commit of each repository.

    It is recorded twice. First as an intent, without hashes: the commits that follow name it, so that a crash between
    can be finished or undone. Then, when all commits are there, with them.
    """

    id: str
    workflow_id: str
    work_id: str
    work_sequence: int
    work_attempt: int
    created_at: datetime
    hashes: Mapping[str, str] = field(default_factory=dict)  # git id: commit
    trees: Mapping[str, str] = field(default_factory=dict)  # git id: tree of that commit; older ones have none recorded
    complete: bool = False
    valid: bool = True  # False once the workflow went back behind it
    version: int = 0

    def finish(self, made: Mapping[str, Committed]) -> None:
        """All commits are there."""
        self.hashes = {git_id: one.commit for git_id, one in made.items()}
        self.trees = {git_id: one.tree for git_id, one in made.items()}
        self.complete = True

    def invalidate(self) -> None:
        """The workflow went back to before it. The commits stay, under their refs."""
        self.valid = False
