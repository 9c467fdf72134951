"""Clones, worktrees, checkpoints and resets on the git command line.

Nothing of a repository is trusted: see ``hardening`` for what git may read and run, and ``control`` for where.
"""

from kingdom.gitops.checkpoints import CheckpointCommit, Checkpoints, Mark
from kingdom.gitops.clock import Clock
from kingdom.gitops.clones import CloneOptions, Clones, Ensured
from kingdom.gitops.commits import Commit, Identity
from kingdom.gitops.diffs import FileDiff, diff, log
from kingdom.gitops.errors import (
    BaseNotFound,
    BranchExists,
    CheckpointConflict,
    CloneBroken,
    CommandFailed,
    CommandTimedOut,
    FolderExists,
    GitError,
    GitNotUsable,
    InvalidInput,
    LockBusy,
    OutputTooLarge,
    RemoteFailed,
    TreeMismatch,
    WorktreeBroken,
    WorktreeDirty,
)
from kingdom.gitops.hardening import RemoteAccess
from kingdom.gitops.merging import Conflict, Merge, merge
from kingdom.gitops.repository import Clone
from kingdom.gitops.rescue import Rescue, list_rescues, remove_rescue
from kingdom.gitops.reset import Reset, reset
from kingdom.gitops.runner import Git, Place, Result
from kingdom.gitops.verifying import Problem, Recorded, verify
from kingdom.gitops.worktree import Worktree
from kingdom.gitops.worktrees import Pruned, Worktrees

__all__ = [
    "BaseNotFound", "BranchExists", "CheckpointCommit", "CheckpointConflict", "Checkpoints", "Clock", "Clone",
    "CloneBroken", "CloneOptions", "Clones", "CommandFailed", "CommandTimedOut", "Commit", "Conflict", "Ensured",
    "FileDiff", "FolderExists", "Git", "GitError", "GitNotUsable", "Identity", "InvalidInput", "LockBusy", "Mark",
    "Merge", "OutputTooLarge", "Place", "Problem", "Pruned", "Recorded", "RemoteAccess", "RemoteFailed", "Rescue",
    "Reset", "Result", "TreeMismatch", "Worktree", "WorktreeBroken", "WorktreeDirty", "Worktrees", "diff",
    "list_rescues", "log", "merge", "remove_rescue", "reset", "verify",
]  # fmt: skip
