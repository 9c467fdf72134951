"""Errors of the workflow layer. Each has a ``code`` that the API, the CLI and refused commands show."""

from __future__ import annotations


class WorkflowError(Exception):
    """The base of all errors of the workflow layer."""

    code = "WFL"


class IllegalTransition(WorkflowError):
    """A status change that the current status does not allow."""

    code = "WFL_ILLEGAL_TRANSITION"

    def __init__(self, what: str, item_id: str, current: str, wanted: str, text: str | None = None) -> None:
        """``text`` is the message, if there is one that says more than the statuses."""
        super().__init__(text or f"{what} {item_id} is {current} and cannot become {wanted}")
        self.what, self.item_id, self.current, self.wanted = what, item_id, current, wanted


class NotModifiable(WorkflowError):
    """A change of the plan that is not possible now or not any more."""

    code = "MOD_NOT_NOW"


class InvalidPlan(WorkflowError, ValueError):
    """A plan whose works or tasks contradict each other. A ValueError, so that models can use the rules of plans."""

    code = "TPL_INVALID"


class StillInUse(WorkflowError):
    """A repository or MCP server that a workflow uses, so that it cannot be deleted."""

    code = "SYS_IN_USE"


class NameTaken(WorkflowError):
    """A name that another repository or MCP server has: templates refer to them by name."""

    code = "SYS_NAME_TAKEN"


class NotFound(WorkflowError):
    """The workflow, template, repository or other item does not exist."""

    code = "SYS_NOT_FOUND"


class StoreError(WorkflowError):
    """The store cannot be used."""

    code = "SYS_STORE"


class HeldElsewhere(WorkflowError):
    """The engine of another machine holds the workflow, and runs."""

    code = "WFL_HELD_ELSEWHERE"


class ConcurrentChange(WorkflowError):
    """Another transaction changed an item between reading and writing it. Read it again and retry."""

    code = "SYS_CONCURRENT_CHANGE"
