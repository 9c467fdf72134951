"""Connections to the database in which the machines of a court meet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from kingdom.bus.errors import InvalidOption, NotPermitted, TransportUnavailable
from kingdom.bus.transports.postgresql import away_hint, split_url
from kingdom.bus.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CONNECT_SECONDS: Final = 10.0
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
_HAS_SCHEMA: Final = "SELECT 1 FROM pg_namespace WHERE nspname = $1"


class CourtDatabase:
    """Gives out connections: a new one for each use, or one that is kept (``keep``) and used by one caller at a time.

    Errors of the connection are raised as :class:`~kingdom.bus.errors.TransportUnavailable`, those of its settings as
    :class:`~kingdom.bus.errors.InvalidOption`, that a right is missing as :class:`~kingdom.bus.errors.NotPermitted`.
    """

    def __init__(self, url: str, *, keep: bool = False, connect_timeout: float = CONNECT_SECONDS) -> None:
        self._url = url
        self._dsn, options = split_url(url)
        self._schema = options.get("schema")
        self._keep = keep
        self._connect_timeout = connect_timeout
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
        """Run statements that create what is missing, the schema too. Several machines may do it at once.

        Raises :class:`~kingdom.bus.errors.NotPermitted` when the role may create nothing there.
        """
        async with self.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _SETUP_LOCK)
            await connection.execute("SELECT 1 FROM pg_catalog.pg_class LIMIT 1")  # or CREATE would not see the others'
            try:
                # IF NOT EXISTS would ask for the right to create schemas, also when it exists.
                if self._schema and not await connection.fetchval(_HAS_SCHEMA, self._schema):
                    await connection.execute(f"CREATE SCHEMA {_quoted(self._schema)}")
                await connection.execute(statements)
            except asyncpg.InsufficientPrivilegeError as error:
                raise NotPermitted(
                    f"{redact_url(self._url)}: {error}: give its role the database "
                    "(ALTER DATABASE … OWNER TO …), or a schema of its own and name that in the URL (?schema=NAME)"
                ) from None

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
            settings["search_path"] = _quoted(self._schema)
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=self._connect_timeout,
                command_timeout=_STATEMENT_SECONDS,
                server_settings=settings,
                statement_cache_size=0,
            )
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise TransportUnavailable(
                f"{redact_url(self._url)} refuses the role: {error}. Check user and password; if they are those of "
                "kingdom machines add, the machine was removed or has a newer password: run that command again"
            ) from None
        except asyncpg.exceptions.ClientConfigurationError as error:
            raise InvalidOption(f"{redact_url(self._url)}: {error}") from None
        except TimeoutError:
            raise TransportUnavailable(
                f"cannot connect to {redact_url(self._url)}: no answer in {self._connect_timeout:.0f} s. "
                f"{away_hint(self._dsn)}"
            ) from None
        except OSError as error:
            raise TransportUnavailable(
                f"cannot connect to {redact_url(self._url)}: {error}. {away_hint(self._dsn)}"
            ) from None
        except asyncpg.PostgresError as error:
            raise TransportUnavailable(f"cannot connect to {redact_url(self._url)}: {error}") from None

    @contextlib.contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except _LOST as error:
            raise TransportUnavailable(f"lost the connection to {redact_url(self._url)}: {error}") from None
        except asyncpg.InsufficientPrivilegeError as error:
            raise NotPermitted(f"{redact_url(self._url)}: {error}: its role lacks this right") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


async def _close(connection: Any) -> None:
    with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=2)
