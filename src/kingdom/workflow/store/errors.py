"""What can be wrong with a store."""

from __future__ import annotations

from kingdom.workflow.domain.errors import WorkflowError


class StoreError(WorkflowError):
    """The store cannot be used."""

    code = "SYS_STORE"


class ConcurrentChange(WorkflowError):
    """Somebody else changed what was read, before it was written back. Read it again and decide anew."""

    code = "SYS_CONCURRENT_CHANGE"
