"""Every exception of the git layer, in one place.

::

    GitError                     anything this layer raises
    ├── InvalidInput             an id, a URL, a branch or an option that is not allowed (a ValueError too)
    ├── GitNotUsable             git is not installed, or too old
    ├── CommandFailed            git said no: has the command, the exit code and git's own words
    │   ├── CommandTimedOut      git did not end in time and was killed
    │   ├── OutputTooLarge       git printed more than was allowed and was killed
    │   └── RemoteFailed         clone or fetch: no such repository, no access, no network
    ├── LockBusy                 another process holds a lock of ours, and did not let go in time
    ├── CloneBroken              a clone is missing or damaged: ``Clones.ensure`` makes it again
    ├── BaseNotFound             there is no such branch, tag or commit to start from
    ├── BranchExists             the branch of a new worktree is there already, and is not ours
    ├── FolderExists             the folder of a new worktree is there already, and is not ours
    ├── WorktreeBroken           the worktree's folder is gone, or is not what was recorded
    ├── WorktreeDirty            the worktree has changes that no commit holds
    ├── CheckpointConflict       a checkpoint of this name holds something else
    └── TreeMismatch             after a reset the files are not the recorded tree
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class GitError(Exception):
    """Base of every error of this layer."""


class InvalidInput(GitError, ValueError):
    """An id, a URL, the name of a branch or an option that is not allowed. Nothing was run."""


class GitNotUsable(GitError):
    """The git program is missing or too old."""


class CommandFailed(GitError):
    """A git command ended with an error. ``command``, ``code`` and ``said`` (git's own words) tell what happened."""

    def __init__(self, command: Sequence[str], code: int | None, said: str, advice: str = "") -> None:
        self.command = tuple(command)
        self.code = code
        self.said = said.strip()
        self.advice = advice
        ended = "was ended" if code is None else f"ended with exit code {code}"
        super().__init__(
            f"`{' '.join(command)}` {ended}: {self.said or 'it said nothing'}" + (f" ({advice})" if advice else "")
        )

    @property
    def answered(self) -> bool:
        """Whether git itself said no. One that was killed, or did not end in time, says nothing about the matter."""
        return self.code is not None and self.code > 0


class CommandTimedOut(CommandFailed):
    """The command did not end in time; its process group was killed."""


class OutputTooLarge(CommandFailed):
    """The command printed more than was allowed; its process group was killed."""


class RemoteFailed(CommandFailed):
    """The remote repository could not be read."""


class LockBusy(GitError):
    """Another process works on the same clone or worktree and did not let go in time."""


class CloneBroken(GitError):
    """A clone is missing or damaged."""


class BaseNotFound(GitError):
    """There is nothing of this name to start a branch from."""


class BranchExists(GitError):
    """The branch that a new worktree shall have is there already."""


class FolderExists(GitError):
    """The folder that a new worktree shall have is there already."""


class WorktreeBroken(GitError):
    """A worktree is not what was recorded: its folder is missing, or has become a link to somewhere else."""


class WorktreeDirty(GitError):
    """A worktree has changes that no commit holds, and the operation needs it clean."""


class CheckpointConflict(GitError):
    """A checkpoint of this name exists and holds something else."""


class TreeMismatch(GitError):
    """After a reset the files are not the recorded tree. The files that differ are in ``paths``."""

    def __init__(self, message: str, paths: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)
