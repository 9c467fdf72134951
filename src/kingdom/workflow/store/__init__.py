"""Where workflows are kept: aggregates, the events the interface shows, and the bus, in one database.

``open_store("sqlite:///workflows.db")`` or a PostgreSQL URL. State and events are written in one transaction.
"""

from kingdom.workflow.errors import ConcurrentChange, StoreError
from kingdom.workflow.store.database import open_store

__all__ = ["ConcurrentChange", "StoreError", "open_store"]
