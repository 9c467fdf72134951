"""The store in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from kingdom.base.locks import FileLock
from kingdom.workflow.errors import StoreError
from kingdom.workflow.store.database import DatabaseStore
from kingdom.workflow.store.holds import EngineHolds, Holder, find_holder, home_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from kingdom.workflow.ports import EngineLock
    from kingdom.workflow.store.repositories import DatabaseSession, Row

_POOL_SIZE: Final = 8
_CLOSE_SECONDS: Final = 5.0
_OUTAGES: Final = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of a connection that was lost in the middle of something
    asyncpg.OperatorInterventionError,  # it shuts down, or starts
)
_BUS_OPTIONS: Final = ("schema", "pgbouncer")  # options of the URL for the bus, not for the server
_MIGRATION_LOCK: Final = 0x6B776601  # advisory lock
_ENGINE_LOCK: Final = 0x6B776602  # advisory lock
_LOCK_FILE: Final = "engine.lock"  # of a home whose engine shares the store

_ENGINE_LOCK_HELD: Final = """
    SELECT EXISTS (
        SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
        WHERE locktype = 'advisory' AND datname = current_database() AND granted
            AND classid::bigint = ? AND objid::bigint = (hashtext(current_schema())::bigint & 4294967295)
    )
"""


class AdvisoryLock:
    """The lock of the engine, held by a PostgreSQL connection of its own. It ends with the connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def take(cls, connection: Any, *, shared: bool = False) -> AdvisoryLock | None:
        """Take the lock, beside other engines that share it or alone. If that cannot be, return None."""
        function = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
        if await connection.fetchval(f"SELECT {function}($1, hashtext(current_schema()))", _ENGINE_LOCK):
            return cls(connection)
        await connection.close()
        return None

    async def release(self) -> None:
        """Release the lock and close the connection."""
        await self._connection.close(timeout=_CLOSE_SECONDS)

    def drop(self) -> None:
        """Release the lock at once, without waiting for the server."""
        self._connection.terminate()


class SharedEngineLock:
    """The right of a home to run workflows beside other engines: its lock file, and the lock in the database."""

    def __init__(self, store: PostgresWorkflowStore, file: FileLock, lock: AdvisoryLock) -> None:
        self._store = store
        self._file = file
        self._lock = lock

    async def release(self) -> None:
        """Release both. The lease runs out by itself: until then, this home may go on with its agents."""
        self._store.holds = None
        await self._lock.release()
        self._file.release()

    def drop(self) -> None:
        """Release both at once, without waiting for the server."""
        self._store.holds = None
        self._lock.drop()
        self._file.release()


class PostgresSession:
    """Runs statements with asyncpg."""

    row_lock = " FOR UPDATE"
    nests_inserts = True
    first_line = 'split_part({text}, chr(10), 1) COLLATE "C"'
    other_lines = 'substr({text}, strpos({text} || chr(10), chr(10)) + 1) COLLATE "C"'
    joined_ids = "string_agg(id, ',')"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""
        rows: Sequence[Row] = await self.connection.fetch(_numbered_parameters(sql), *values)
        return rows


@lru_cache(maxsize=256)
def _numbered_parameters(sql: str) -> str:
    """Replace ``?`` by PostgreSQL's ``$1``, ``$2``, …"""
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)


class PostgresWorkflowStore(DatabaseStore):
    """A small pool of connections."""

    dialect: ClassVar[str] = "postgresql"

    def share(self, home: Path, seconds: float) -> None:
        """Let an engine of this home run beside those of other homes, with leases of ``seconds``."""
        self._home, self._lease_seconds = home, seconds

    _home: Path | None = None
    _lease_seconds: float

    async def _connect(self) -> None:
        address, settings = self._address()
        try:
            self._pool: Any = await asyncpg.create_pool(
                address, min_size=1, max_size=_POOL_SIZE, server_settings=settings, reset=_no_reset
            )
        except (OSError, asyncpg.PostgresError) as error:
            raise StoreError(f"the store at {self.shown_url} cannot be reached: {error}") from None

    def _address(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.url)
        query = dict(parse_qsl(parts.query))
        settings = {"search_path": query["schema"]} if "schema" in query else {}
        plain = urlencode({key: value for key, value in query.items() if key not in _BUS_OPTIONS})
        return urlunsplit(parts._replace(query=plain)), settings

    async def lock_engine(self) -> EngineLock | None:
        """Take the engine lock with a connection of its own; return None if another process has it."""
        if self._home is None:
            return await self._lock()
        if (file := FileLock.take(self._home / _LOCK_FILE)) is None:
            return None
        if (lock := await self._lock(shared=True)) is None:
            file.release()
            return None
        holds = EngineHolds(self.session, home_name(self._home), self._lease_seconds)
        try:
            await holds.take(f"{socket.gethostname()}:{os.getpid()}")
        except BaseException:
            lock.drop()
            file.release()
            raise
        self.holds = holds
        return SharedEngineLock(self, file, lock)

    async def _lock(self, *, shared: bool = False) -> AdvisoryLock | None:
        address, settings = self._address()
        try:
            connection = await asyncpg.connect(address, server_settings=settings)
        except (OSError, asyncpg.PostgresError) as error:
            raise StoreError(f"the store at {self.shown_url} cannot be reached: {error}") from None
        return await AdvisoryLock.take(connection, shared=shared)

    async def engine_running(self) -> bool:
        """Return whether a process has the engine lock."""
        async with self.session(readonly=True) as session:
            ((held,),) = await session.fetch(_ENGINE_LOCK_HELD, _ENGINE_LOCK)
        return bool(held)

    async def holder(self, workflow_id: str) -> Holder | None:
        """Return the engine that holds a workflow, if engines share the store."""
        async with self.session(readonly=True) as session:
            return await find_holder(session, workflow_id)

    async def _disconnect(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._pool.close()
        except TimeoutError:  # the server cannot be reached
            self._pool.terminate()

    @asynccontextmanager
    async def session(self, *, readonly: bool = False) -> AsyncIterator[DatabaseSession]:
        """Open a transaction: commit at the end of the block, roll back if it raises."""
        try:
            async with self._pool.acquire() as connection, connection.transaction(readonly=readonly):
                yield PostgresSession(connection)
        except _OUTAGES as error:
            raise StoreError(f"the store at {self.shown_url} cannot be used: {error}") from error

    async def _has_tables(self, session: DatabaseSession) -> bool:
        await session.fetch("SELECT pg_advisory_xact_lock(?)", _MIGRATION_LOCK)  # concurrent setups take turns
        ((name,),) = await session.fetch("SELECT to_regclass('wf_counter')::text")
        return name is not None


async def _no_reset(_: object) -> None:
    """Do nothing: connections only run transactions, and settings of a transaction end with it."""
