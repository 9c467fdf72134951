"""Connections to the database in which the machines of a court meet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from kingdom.bus.errors import TransportUnavailable
from kingdom.bus.transports.postgresql import split_url
from kingdom.bus.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_CONNECT_SECONDS: Final = 10.0
_STATEMENT_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 4.0  # in a transaction, after which the server ends it
_LOST: Final = (
    ConnectionError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of a connection that was lost in the middle of something
)
_SETUP_LOCK: Final = 0x6D616368696E65  # "machine", of an advisory lock


class CourtDatabase:
    """Gives out connections: a new one for each use, or one that is kept (``keep``) and used by one caller at a time.

    Errors of the connection are raised as :class:`~kingdom.bus.errors.TransportUnavailable`.
    """

    def __init__(self, url: str, *, keep: bool = False) -> None:
        self._url = url
        self._dsn, options = split_url(url)
        self._schema = options.get("schema")
        self._keep = keep
        self._kept: Any = None
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Yield a connection."""
        if not self._keep:
            connection = await self._connect()
            try:
                with self._errors_translated():
                    yield connection
            finally:
                await _close(connection)
            return
        async with self._turn:
            if self._kept is None or self._kept.is_closed():
                self._kept = await self._connect()
            kept = self._kept
            try:
                with self._errors_translated():
                    yield kept
            except BaseException:
                # It may be in the middle of an operation: the next caller gets another.
                self._kept = None
                await _close(kept)
                raise

    @contextlib.asynccontextmanager
    async def transaction(self, isolation: str = "read_committed") -> AsyncIterator[Any]:
        """Yield a connection in a transaction."""
        async with self.connection() as connection, connection.transaction(isolation=isolation):
            yield connection

    async def create_tables(self, statements: str) -> None:
        """Run statements that create what is missing. Several machines may do it at once."""
        async with self.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _SETUP_LOCK)
            await connection.execute("SELECT 1 FROM pg_catalog.pg_class LIMIT 1")  # or CREATE would not see the others'
            await connection.execute(statements)

    async def close(self) -> None:
        """Close the connection that is kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await _close(kept)

    async def _connect(self) -> Any:
        # A machine that is frozen or dies in a transaction must not keep its locks.
        idle = str(round(_IDLE_SECONDS * 1000))
        settings = {"application_name": "kingdom machines", "idle_in_transaction_session_timeout": idle}
        if self._schema:
            settings["search_path"] = self._schema
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=_CONNECT_SECONDS,
                command_timeout=_STATEMENT_SECONDS,
                server_settings=settings,
                statement_cache_size=0,
            )
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise TransportUnavailable(
                f"{redact_url(self._url)} refuses this machine: {error}. It was removed from the court, or its "
                "password was changed: kingdom machines add, on the machine that leads, gives it a new one"
            ) from None
        except (OSError, asyncpg.PostgresError) as error:
            raise TransportUnavailable(f"cannot connect to {redact_url(self._url)}: {error}") from None

    @contextlib.contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except _LOST as error:
            raise TransportUnavailable(f"lost the connection to {redact_url(self._url)}: {error}") from None


async def _close(connection: Any) -> None:
    with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=2)
