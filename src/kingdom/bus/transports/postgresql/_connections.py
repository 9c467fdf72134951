"""A pool of connections to the server, and the migrations of its tables."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from kingdom.base.backoff import backoff
from kingdom.bus.errors import (
    BusError,
    InvalidOption,
    NotPermitted,
    NotSetUp,
    SchemaTooNew,
    StorageFull,
    TransportUnavailable,
)
from kingdom.bus.outbox import migrations
from kingdom.bus.urls import server_place, server_url_parts

T = TypeVar("T")
Connection = Any  # asyncpg.Connection, whose stubs are generic in the record class

OWN_OPTIONS: Final = frozenset({"schema", "pool", "pgbouncer", "listen"})
# Our statements are written for their indexes. On a table that was just created, or has grown since it was last
# analysed, the planner may prefer a full scan; nothing in these sessions would profit from one.
_SESSION_SETTINGS: Final = {
    "application_name": "kingdom",
    # A process that is frozen in a transaction must not keep its locks: others may wait for them.
    "idle_in_transaction_session_timeout": "15000",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # Planning the statements for each set of parameters costs more than running them.
    "plan_cache_mode": "force_generic_plan",
}
CONNECTION_ERRORS: Final = (
    OSError,
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.TooManyConnectionsError,
    pg.InternalClientError,
    asyncpg.InterfaceError,
    TimeoutError,
)
_RETRYABLE_ERRORS: Final = (pg.DeadlockDetectedError, pg.SerializationError, pg.QueryCanceledError)


class ConnectionPool:
    """A few connections, replaced when the server goes away, and the rules for retrying.

    The pool of asyncpg resets a connection after each use, which costs a round trip for each statement. Ours run
    single statements and short transactions that always end, so they need no reset.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self.dsn, options = split_url(url)
        self.shown = _redacted(self.dsn)
        self.schema: str | None = options.get("schema") or None
        self.pgbouncer = _flag(options.get("pgbouncer", "off"), "pgbouncer")
        self.listens = _flag(options.get("listen", "on"), "listen") and not self.pgbouncer
        self._timeout = timeout
        # A stack: the connection used last is used next. None stands for a connection that is not open yet.
        self._idle: list[Connection | None] = [None] * _number(options.get("pool", "4"), "pool")
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._all: set[Connection] = set()
        self._closed = False

    async def connect(self) -> Connection:
        """Open a connection outside the pool's count; the caller closes it."""
        settings = {} if self.pgbouncer else dict(_SESSION_SETTINGS)
        return await asyncpg.connect(
            self.dsn,
            timeout=min(10.0, self._timeout),
            statement_cache_size=0 if self.pgbouncer else 200,
            server_settings=settings,
        )

    @property
    def pids(self) -> set[int]:
        """The server processes of our connections: notifications from these are our own."""
        return {connection.get_server_pid() for connection in self._all if not connection.is_closed()}

    async def use(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do ``work`` with a connection of the pool, once."""
        connection = self._idle.pop() if self._idle else await self._wait_for_connection()
        try:
            if connection is None or connection.is_closed():
                self._all.discard(connection)
                connection = None  # opening may fail
                connection = await self.connect()
                self._all.add(connection)
            return await work(connection)
        except BaseException as error:
            if connection is not None and _leaves_connection_in_doubt(error):
                connection.terminate()
            raise
        finally:
            self._give_back(connection)

    def _give_back(self, connection: Connection | None) -> None:
        if self._closed and connection is not None:
            connection.terminate()
        self._hand_over(connection)

    async def _wait_for_connection(self) -> Connection | None:
        """Wait until a connection is given back: first come, first served."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # a connection was handed over at the same moment
                self._hand_over(turn.result())
            raise

    def _hand_over(self, connection: Connection | None) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        self._idle.append(connection)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do ``work`` with a connection; while the server is away, retry with back-off until the timeout."""
        started, tries = time.monotonic(), 0
        while True:
            tries += 1
            try:
                return await self.use(work)
            except BusError:  # translated already; two of these are OSErrors too
                raise
            except (*CONNECTION_ERRORS, pg.PostgresError) as error:
                self._raise_if_permanent(error)
                waited = time.monotonic() - started
                if self._closed:
                    raise TransportUnavailable(f"the bus at {self.shown} is closed") from error
                if waited >= self._timeout:
                    raise TransportUnavailable(
                        f"{self.shown} did not answer in {waited:.0f} s ({tries} tries): {_one_line(error)}. "
                        f"{away_hint(self.dsn)}"
                    ) from error
                pause = backoff(tries, 0.05, 2.0, jitter=0.3)
                await asyncio.sleep(min(pause, max(0.0, self._timeout - waited)))

    def _raise_if_permanent(self, error: BaseException) -> None:
        """Return if a retry may help; otherwise raise the error of the bus that says what to do."""
        if isinstance(error, (pg.UndefinedTableError, pg.UndefinedColumnError, pg.GeneratedAlwaysError)):
            raise NotSetUp(
                f"{self.shown} has no tables of the bus yet, or older ones ({_one_line(error)}): "
                "run `await bus.setup()` or `kingdom bus migrate`"
            ) from error
        if isinstance(error, pg.ClientConfigurationError):
            raise InvalidOption(f"{self.shown}: {_one_line(error)}") from error
        if isinstance(error, pg.InsufficientPrivilegeError):
            raise NotPermitted(f"{self.shown}: {_one_line(error)}: its role lacks this right") from error
        if isinstance(error, (pg.DiskFullError, pg.OutOfMemoryError)):
            raise StorageFull(f"{self.shown} has no room left: {_one_line(error)}") from error
        if isinstance(error, (pg.InvalidAuthorizationSpecificationError, pg.InvalidCatalogNameError)):
            raise TransportUnavailable(f"cannot connect to {self.shown}: {_one_line(error)}") from error
        if not isinstance(error, (*CONNECTION_ERRORS, *_RETRYABLE_ERRORS)):
            raise BusError(f"{self.shown}: {type(error).__name__}: {_one_line(error)}") from error

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        idle = [connection for connection in self._idle if connection is not None]
        self._idle = [None] * len(self._idle)  # the others are in use, and closed when they are given back
        for connection in idle:
            await close_connection(connection)
        self._all.clear()


def _leaves_connection_in_doubt(error: BaseException) -> bool:
    """Return whether a connection that raised this must not be used again.

    After an error that the server reported, asyncpg has read the whole answer. After anything else (a cancellation, a
    broken socket, an error of asyncpg itself) an operation may still be under way: every later one on that connection
    would fail with "another operation is in progress".
    """
    return isinstance(error, CONNECTION_ERRORS) or not isinstance(error, (pg.PostgresError, BusError))


async def close_connection(connection: Connection) -> None:
    """Close a connection; terminate it if the server does not answer."""
    try:
        await connection.close(timeout=2)
    except (*CONNECTION_ERRORS, pg.PostgresError):
        connection.terminate()
        await asyncio.sleep(0)  # lets the loop close the socket


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into the one for the driver and the options of the bus."""
    parts = server_url_parts(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    own = {key: value for key, value in query if key in OWN_OPTIONS}
    rest = urlencode([(key, value) for key, value in query if key not in OWN_OPTIONS])
    return urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")), own


def away_hint(dsn: str) -> str:
    """Say what to do about a server that does not answer."""
    host, _, port = server_place(dsn).partition(",")[0].rpartition(":")
    asked = f"pg_isready -h {host} -p {port}" if host and port.isdigit() else f"pg_isready -h {server_place(dsn)}"
    return f"Is it up, and can it be reached from this machine? {asked} asks it"


def _flag(value: str, name: str) -> bool:
    if value.lower() in ("on", "true", "1", "yes"):
        return True
    if value.lower() in ("off", "false", "0", "no"):
        return False
    raise InvalidOption(f"the URL's {name}={value!r}: write on or off")


def _number(value: str, name: str) -> int:
    if not value.isdigit() or not 1 <= int(value) <= 100:
        raise InvalidOption(f"the URL's {name}={value!r}: a whole number from 1 to 100")
    return int(value)


def _redacted(dsn: str) -> str:
    return f"postgresql://{server_place(dsn)}{urlsplit(dsn).path}"


def _one_line(error: BaseException) -> str:
    said = "no answer" if isinstance(error, TimeoutError) else type(error).__name__
    return " ".join(str(error).split()) or said


# ── migrations: numbered, forward only ────────────────────────────────────────────────────────────────────────────

_MIGRATION_LOCK: Final = 0x6B696E67646F6D  # "kingdom", of an advisory lock


async def migrate(connection: Connection, schema: str | None, shown: str) -> list[str]:
    """Apply the missing migrations in one transaction; return their names."""
    applied = await _applied_migrations(connection, schema)
    if applied >= {number for number, _, _ in migrations("postgresql")}:
        _refuse_newer(applied, shown)
        return []  # with a role that may create nothing, too
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
        # A session learns of the tables that others have made when it locks a relation, and an advisory lock is none:
        # without this, to_regclass and CREATE … IF NOT EXISTS would not see what the last holder of the lock made.
        await connection.execute("SELECT 1 FROM pg_catalog.pg_class LIMIT 1")
        if schema is not None:
            # IF NOT EXISTS would ask for the right to create schemas, also when it exists.
            if await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema) is None:
                await connection.execute(f"CREATE SCHEMA {_quoted(schema)}")
            await connection.execute(f"SET LOCAL search_path TO {_quoted(schema)}")
        applied = await _applied_migrations(connection, schema)
        _refuse_newer(applied, shown)
        if not applied:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS kingdom_migration "
                "(number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
            )
        names = []
        for number, name, sql in migrations("postgresql"):
            if number not in applied:
                await connection.execute(sql)
                await connection.execute("INSERT INTO kingdom_migration (number, name) VALUES ($1, $2)", number, name)
                names.append(name)
        return names


async def check_version(connection: Connection, schema: str | None, shown: str) -> None:
    """Raise :class:`SchemaTooNew` if a newer version of the code has migrated this database."""
    _refuse_newer(await _applied_migrations(connection, schema), shown)


async def _applied_migrations(connection: Connection, schema: str | None) -> set[int]:
    table = "kingdom_migration" if schema is None else f"{_quoted(schema)}.kingdom_migration"
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        return set()
    return {row["number"] for row in await connection.fetch(f"SELECT number FROM {table}")}  # noqa: S608


def _quoted(schema: str) -> str:
    return '"' + schema.replace('"', '""') + '"'


def _refuse_newer(applied: set[int], shown: str) -> None:
    newest = max((number for number, _, _ in migrations("postgresql")), default=0)
    if applied and max(applied) > newest:
        raise SchemaTooNew(
            f"{shown} was migrated to version {max(applied)}, this code knows up to {newest}: "
            "update kingdom here; nothing was changed"
        )
