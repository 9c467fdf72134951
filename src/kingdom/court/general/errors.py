"""Why a task cannot be done. The message becomes the error of its result."""

from __future__ import annotations

from kingdom.court.errors import CourtError


class TaskRefused(CourtError):
    """The task cannot be done; another try would fail in the same way."""

    code = "TASK_REFUSED"


class TaskHeld(CourtError):
    """The task waits for a condition outside that will pass: a network, a git host, a missing program."""

    code = "HELD"


class TaskNotReady(CourtError):
    """The task could not be prepared, for a reason that may pass: the network, a lock."""

    code = "NOT_NOW"
