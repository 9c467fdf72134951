"""The exceptions of the git layer.

::

    GitError                     anything this layer raises
    ├── InvalidInput             an id, a URL, a branch or an option that is not allowed (a ValueError too)
    ├── GitNotUsable             git is not installed, or too old
    ├── CommandFailed            a git command failed: has the command, the exit code and git's message
    │   ├── CommandTimedOut      git did not end in time and was killed
    │   ├── OutputTooLarge       git printed more than was allowed and was killed
    │   └── RemoteFailed         clone, fetch or push: no such repository, no access, no network
    ├── RepositoryRefused        a repository cannot be read, or uses what is not supported
    ├── LandingRefused           a branch or pull request is not taken: has the reason and what to do
    ├── RemoteUnavailable        a remote could not be reached: it may be later
    ├── LockBusy                 another process held one of our locks for too long
    ├── CloneBroken              a clone is missing or damaged: ``Clones.ensure`` recreates it
    ├── BaseNotFound             there is no such branch, tag or commit to start from
    ├── BranchExists             the branch of a new worktree exists already
    ├── FolderExists             the folder of a new worktree exists already
    ├── WorktreeBroken           the worktree's folder is gone, or is not what was recorded
    ├── WorktreeDirty            the worktree has uncommitted changes
    ├── FilesTooLarge            a checkpoint would have files over the largest allowed size
    ├── CheckpointConflict       a checkpoint of this name has other content
    └── TreeMismatch             after a reset the files are not the recorded tree
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


class GitError(Exception):
    """Base of every error of this layer."""


class InvalidInput(GitError, ValueError):
    """An id, a URL, the name of a branch or an option that is not allowed. Nothing was run."""


class GitNotUsable(GitError):
    """The git program is missing or too old."""


class CommandFailed(GitError):
    """A git command failed; has ``command``, ``code`` and ``said`` (git's message)."""

    def __init__(self, command: Sequence[str], code: int | None, said: str, advice: str = "") -> None:
        self.command = tuple(command)
        self.code = code
        # ssh ends its lines as terminals want them, and git overwrites its progress.
        self.said = said.replace("\r\n", "\n").replace("\r", "\n").strip()
        self.advice = advice
        ended = "was ended" if code is None else f"ended with exit code {code}"
        super().__init__(
            f"`{' '.join(command)}` {ended}: {self.said or 'it said nothing'}" + (f" ({advice})" if advice else "")
        )

    @property
    def answered(self) -> bool:
        """Whether git itself reported the error, rather than being killed or timing out."""
        return self.code is not None and self.code > 0


class CommandTimedOut(CommandFailed):
    """The command did not end in time; its process group was killed."""


class OutputTooLarge(CommandFailed):
    """The command printed more than was allowed; its process group was killed."""


RemoteReason = Literal["missing", "moved", "no-credential", "denied", "untrusted", "unreachable", "unknown"]


class RemoteFailed(CommandFailed):
    """The remote repository could not be used; ``reason`` says why."""

    def __init__(
        self, command: Sequence[str], code: int | None, said: str, advice: str = "", reason: RemoteReason = "unknown"
    ) -> None:
        super().__init__(command, code, said, advice)
        self.reason: RemoteReason = reason


class RepositoryRefused(GitError):
    """A repository that was tried cannot be read, or uses what is not supported."""


class LandingRefused(GitError):
    """A remote or a checkout does not take a branch or a pull request. ``advice`` says what to do."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}: {advice}")
        self.reason, self.advice = reason, advice


class RemoteUnavailable(GitError):
    """A remote could not be reached. Nothing is known to be wrong with the request: try it again later."""


class LockBusy(GitError):
    """Another process held the lock of a clone or worktree for too long."""


class CloneBroken(GitError):
    """A clone is missing or damaged."""


class BaseNotFound(GitError):
    """There is no branch, tag or commit of this name to start from."""


class BranchExists(GitError):
    """The branch of a new worktree exists already."""


class FolderExists(GitError):
    """The folder of a new worktree exists already."""


class WorktreeBroken(GitError):
    """The folder of a worktree is missing, or has become a link."""


class WorktreeDirty(GitError):
    """A worktree has uncommitted changes, and the operation needs a clean one."""


class FilesTooLarge(GitError):
    """Files of a worktree are larger than a checkpoint may have. They are in ``paths``."""

    def __init__(self, message: str, paths: Sequence[str]) -> None:
        super().__init__(message)
        self.paths = tuple(paths)


class CheckpointConflict(GitError):
    """A checkpoint of this name exists with other content."""


class TreeMismatch(GitError):
    """After a reset the files are not the recorded tree. The files that differ are in ``paths``."""

    def __init__(self, message: str, paths: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)
