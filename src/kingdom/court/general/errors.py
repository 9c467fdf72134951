"""Why a task cannot be done at all: the reason stands in its result, for people."""

from __future__ import annotations

from kingdom.court.errors import CourtError


class TaskRefused(CourtError):
    """A task that cannot be done as it is; another try would end the same way."""

    code = "TASK_REFUSED"


class TaskNotReady(CourtError):
    """A task that could not be prepared, for a reason that may pass (the network, a lock)."""

    code = "NOT_NOW"
