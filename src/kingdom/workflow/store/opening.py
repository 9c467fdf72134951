"""Opening a store by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.workflow.store.errors import StoreError

if TYPE_CHECKING:
    from kingdom.workflow.ports import Clock
    from kingdom.workflow.store.base import DatabaseStore


def open_store(url: str, clock: Clock) -> DatabaseStore:
    """The store at a URL: ``async with open_store(url, clock) as store``."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from kingdom.workflow.store.sqlite import SqliteStore

        return SqliteStore(url, clock)
    if scheme in ("postgresql", "postgres"):
        from kingdom.workflow.store.postgresql import PostgresStore

        return PostgresStore(url, clock)
    raise StoreError(f"a workflow store is sqlite:///file.db or postgresql://…, not {scheme}:")
