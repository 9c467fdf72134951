"""Why a task cannot be done. The message becomes the error of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kingdom.court.errors import CourtError

if TYPE_CHECKING:
    from kingdom.court.pull_requests import OpenedPullRequest


class TaskRefused(CourtError):
    """The task cannot be done; another try would fail in the same way."""

    code = "TASK_REFUSED"


class TaskHeld(CourtError):
    """The task waits for a condition outside that will pass: a network, a git host, a missing program."""

    code = "HELD"


class TaskNotReady(CourtError):
    """The task could not be prepared, for a reason that may pass: the network, a lock."""

    code = "NOT_NOW"


class TaskNotNeeded(CourtError):
    """There is nothing to do for a soldier. ``status`` is that of the result.

    ``counts`` is the pull request for which the king counts the task.
    """

    code = "TASK_NOT_NEEDED"

    def __init__(
        self, status: Literal["failed", "skipped"], reason: str, *, counts: OpenedPullRequest | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.counts = counts
