"""The store in a PostgreSQL database."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from kingdom.workflow.store.base import DatabaseStore
from kingdom.workflow.store.errors import StoreError
from kingdom.workflow.store.sessions import PostgresSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kingdom.workflow.store.sessions import Session

_POOL: Final = 8
_OURS: Final = ("schema", "pgbouncer")  # parts of the URL that are the bus's, not the server's
_MIGRATING: Final = 0x6B776601  # advisory lock


class PostgresStore(DatabaseStore):
    """A small pool of connections."""

    async def _connect(self) -> None:
        parts = urlsplit(self.url)
        query = dict(parse_qsl(parts.query))
        settings = {"search_path": query["schema"]} if "schema" in query else {}
        plain = urlencode({key: value for key, value in query.items() if key not in _OURS})
        try:
            self._pool: Any = await asyncpg.create_pool(
                urlunsplit(parts._replace(query=plain)), min_size=1, max_size=_POOL, server_settings=settings
            )
        except (OSError, asyncpg.PostgresError) as error:
            raise StoreError(f"the store at {self.bus.url} cannot be reached: {error}") from None

    async def _disconnect(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def session(self, *, readonly: bool = False) -> AsyncIterator[Session]:
        """An open transaction; commits at the end of the block, rolls back when it raises."""
        async with self._pool.acquire() as connection, connection.transaction(readonly=readonly):
            yield PostgresSession(connection)

    async def _has_tables(self, session: Session) -> bool:
        await session.fetch("SELECT pg_advisory_xact_lock(?)", _MIGRATING)  # two that set up at once take turns
        ((name,),) = await session.fetch("SELECT to_regclass('wf_counter')::text")
        return name is not None
