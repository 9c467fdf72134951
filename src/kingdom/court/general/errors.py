"""Why a task cannot be done. The message becomes the error of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from kingdom.court.errors import CourtError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        self,
        status: Literal["failed", "skipped", "needs_human"],
        reason: str,
        *,
        counts: OpenedPullRequest | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.counts = counts


class RepositoryUnknown(TaskNotNeeded):
    """A person has to say in which repository to work, before there is anything to do for a soldier."""

    def __init__(self, question: str, choices: Sequence[str]) -> None:
        super().__init__("needs_human", question)
        self.choices = list(choices)

    def document(self) -> dict[str, Any]:
        """Return the question, as a soldier would report it."""
        return {"status": "needs_human", "question": {"text": str(self), "choices": self.choices}}


class RepositoryDenied(TaskHeld):
    """The court has no access to a repository: a token is missing or has expired."""


class RepositoryMissing(TaskNotReady):
    """There is no repository of that name, or the token does not show it."""
