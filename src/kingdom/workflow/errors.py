"""Errors of the workflow layer."""

from __future__ import annotations

# What the domain refuses, and why.


class WorkflowError(Exception):
    """The root of all errors of the workflow layer."""

    code = "WFL"


class IllegalTransition(WorkflowError):
    """A change of state that the state does not allow."""

    code = "WFL_ILLEGAL_TRANSITION"

    def __init__(self, what: str, item_id: str, current: str, wanted: str) -> None:
        super().__init__(f"{what} {item_id} is {current} and cannot become {wanted}")
        self.what, self.item_id, self.current, self.wanted = what, item_id, current, wanted


class NotModifiable(WorkflowError):
    """A change of the plan that is not possible any more, or not now."""

    code = "MOD_NOT_NOW"


class InvalidPlan(WorkflowError):
    """Works and tasks that do not go together."""

    code = "TPL_INVALID"


class StillInUse(WorkflowError):
    """A repository or an MCP server that a workflow uses."""

    code = "SYS_IN_USE"


class NameTaken(WorkflowError):
    """A name that another one has: people and templates know repositories and MCP servers by their names."""

    code = "SYS_NAME_TAKEN"


class NotFound(WorkflowError):
    """There is no such thing."""

    code = "SYS_NOT_FOUND"


class StaleAttempt(WorkflowError):
    """News of an attempt that is over: an agent that was stopped, or a task that was reset meanwhile."""

    code = "WFL_STALE_ATTEMPT"


# What can be wrong with a store.


class StoreError(WorkflowError):
    """The store cannot be used."""

    code = "SYS_STORE"


class ConcurrentChange(WorkflowError):
    """Somebody else changed what was read, before it was written back. Read it again and decide anew."""

    code = "SYS_CONCURRENT_CHANGE"
