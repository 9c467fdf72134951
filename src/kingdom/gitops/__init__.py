"""Clones, worktrees, checkpoints and resets with the git command line.

No repository is trusted: see ``runner`` for what git may read and run, and ``repository`` for the git directory it
uses.
"""

from kingdom.gitops.checkpoints import (
    CheckpointCommit,
    CheckpointMark,
    CheckpointProblem,
    Checkpoints,
    RecordedCheckpoint,
    verify,
)
from kingdom.gitops.clones import CloneOptions, Clones, EnsuredClone
from kingdom.gitops.commits import Clock, Commit, CommitAuthor, FileDiff, add_patches, diff, log
from kingdom.gitops.credentials import Credential, CredentialLookup, CredentialRule, Credentials
from kingdom.gitops.errors import (
    BaseNotFound,
    BranchExists,
    CheckpointConflict,
    CloneBroken,
    CommandFailed,
    CommandTimedOut,
    FilesTooLarge,
    FolderExists,
    GitError,
    GitNotUsable,
    InvalidInput,
    LandingRefused,
    LockBusy,
    OutputTooLarge,
    RemoteFailed,
    RemoteUnavailable,
    RepositoryRefused,
    TreeMismatch,
    WorktreeBroken,
    WorktreeDirty,
)
from kingdom.gitops.merges import Conflict, MergeResult, merge
from kingdom.gitops.remotes import RemoteAccess, is_outage
from kingdom.gitops.repository import Clone
from kingdom.gitops.reset import Rescue, ResetResult, list_rescues, remove_rescue, reset
from kingdom.gitops.runner import GitLocation, GitResult, GitRunner
from kingdom.gitops.settings import GitSettings
from kingdom.gitops.worktree import Worktree
from kingdom.gitops.worktrees import PruneResult, Worktrees

__all__ = [
    "BaseNotFound", "BranchExists", "CheckpointCommit", "CheckpointConflict", "CheckpointMark", "CheckpointProblem",
    "Checkpoints", "Clock", "Clone", "CloneBroken", "CloneOptions", "Clones", "CommandFailed", "CommandTimedOut",
    "Commit", "CommitAuthor", "Conflict", "Credential", "CredentialLookup", "CredentialRule", "Credentials",
    "EnsuredClone", "FileDiff", "FilesTooLarge", "FolderExists", "GitError", "GitLocation", "GitNotUsable",
    "GitResult", "GitRunner", "GitSettings", "InvalidInput", "LandingRefused", "LockBusy", "MergeResult",
    "OutputTooLarge", "PruneResult", "RecordedCheckpoint", "RemoteAccess", "RemoteFailed", "RemoteUnavailable",
    "RepositoryRefused", "Rescue", "ResetResult", "TreeMismatch", "Worktree", "WorktreeBroken", "WorktreeDirty",
    "Worktrees", "add_patches", "diff", "is_outage", "list_rescues", "log", "merge", "remove_rescue", "reset", "verify",
]  # fmt: skip
