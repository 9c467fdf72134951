"""Connections to the server, and migrations of its tables."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from kingdom.bus.errors import BusError, InvalidOption, NotSetUp, SchemaTooNew, StorageFull, TransportUnavailable
from kingdom.bus.outbox import migrations

# Connections: few, kept, and replaced when the server goes away.
#
# asyncpg's own pool resets a connection after each use, which costs a round trip per statement. Ours run nothing that
# would need it: single statements and short transactions that always end.


T = TypeVar("T")
Connection = Any  # asyncpg.Connection, whose stubs are generic in the record class

OWN_OPTIONS: Final = frozenset({"schema", "pool", "pgbouncer", "listen"})
# Our statements are written for their indexes. On a table that was just created, or has grown since it was last
# analysed, the planner may prefer to read all of it; these sessions run nothing that would profit from that.
_SESSION: Final = {
    "application_name": "kingdom",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # Planning them anew for each set of parameters costs more than running them.
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
    """A handful of connections, and the rules for trying again."""

    def __init__(self, url: str, timeout: float) -> None:
        self.dsn, options = split_url(url)
        self.shown = _redacted(self.dsn)
        self.schema: str | None = options.get("schema") or None
        self.pgbouncer = _flag(options.get("pgbouncer", "off"), "pgbouncer")
        self.listens = _flag(options.get("listen", "on"), "listen") and not self.pgbouncer
        self._timeout = timeout
        # What can be borrowed, used last on top; None stands for a connection that is not open yet.
        self._idle: list[Connection | None] = [None] * _number(options.get("pool", "4"), "pool")
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._all: set[Connection] = set()
        self._closed = False

    async def connect(self) -> Connection:
        """A new connection outside the pool's count; the caller closes it."""
        settings = {} if self.pgbouncer else dict(_SESSION)
        return await asyncpg.connect(
            self.dsn,
            timeout=min(10.0, self._timeout),
            statement_cache_size=0 if self.pgbouncer else 200,
            server_settings=settings,
        )

    @property
    def pids(self) -> set[int]:
        """The server processes behind our connections: their notifications are our own."""
        return {connection.get_server_pid() for connection in self._all if not connection.is_closed()}

    async def use(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do ``work`` with a borrowed connection, once."""
        connection = self._idle.pop() if self._idle else await self._turn()
        try:
            if connection is None or connection.is_closed():
                self._all.discard(connection)
                connection = None  # in case that none can be opened
                connection = await self._open()
            return await work(connection)
        except asyncio.CancelledError:
            # The statement may still be running on the server: a fresh connection is cheaper than guessing.
            if connection is not None:
                connection.terminate()
            raise
        finally:
            self.give_back(connection)

    def lend(self) -> Connection | None:
        """An open connection that is free right now, to be given back; None: :meth:`use` waits for one or opens it."""
        connection = self._idle[-1] if self._idle else None
        return None if connection is None or connection.is_closed() else self._idle.pop()

    def give_back(self, connection: Connection | None) -> None:
        """Let others use what was lent; one that waits comes first."""
        if self._closed and connection is not None:
            connection.terminate()
        if self._waiting:
            self._hand_on(connection)
        else:
            self._idle.append(connection)

    async def _turn(self) -> Connection | None:
        """Wait until somebody gives a connection back: first come, first served."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was handed over in the same moment
                self._hand_on(turn.result())
            raise

    def _hand_on(self, connection: Connection | None) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        self._idle.append(connection)

    async def _open(self) -> Connection:
        connection = await self.connect()
        self._all.add(connection)
        return connection

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do ``work`` with a connection; when the server is away, try again with back-off until the time is up."""
        started, tries = time.monotonic(), 0
        while True:
            tries += 1
            try:
                return await self.use(work)
            except BusError:  # judged already; two of them are OSErrors too
                raise
            except (*CONNECTION_ERRORS, pg.PostgresError) as error:
                self._judge(error)
                waited = time.monotonic() - started
                if self._closed:
                    raise TransportUnavailable(f"the bus at {self.shown} is closed") from error
                if waited >= self._timeout:
                    raise TransportUnavailable(
                        f"{self.shown} did not answer in {waited:.0f} s ({tries} tries): {_one_line(error)}"
                    ) from error
                pause = min(2.0, 0.05 * 2 ** min(tries, 8)) * random.uniform(0.7, 1.3)  # noqa: S311
                await asyncio.sleep(min(pause, max(0.0, self._timeout - waited)))

    def _judge(self, error: BaseException) -> None:
        """Return when it is worth trying again; else raise what the caller can make use of."""
        if isinstance(error, (pg.UndefinedTableError, pg.UndefinedColumnError, pg.GeneratedAlwaysError)):
            raise NotSetUp(
                f"{self.shown} has no tables of the bus yet, or older ones ({_one_line(error)}): "
                "run `await bus.setup()` or `kingdom bus migrate`"
            ) from error
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


async def close_connection(connection: Connection) -> None:
    """Close a connection politely, or at least for certain."""
    try:
        await connection.close(timeout=2)
    except (*CONNECTION_ERRORS, pg.PostgresError):
        connection.terminate()
        await asyncio.sleep(0)  # lets the loop close the socket


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """Part the bus's own options from what the driver understands."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    own = {key: value for key, value in query if key in OWN_OPTIONS}
    rest = urlencode([(key, value) for key, value in query if key not in OWN_OPTIONS])
    return urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")), own


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
    parts = urlsplit(dsn)
    place = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "localhost")
    return f"postgresql://{place}{parts.path}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# Numbered migrations, forward only.


_LOCK: Final = 0x6B696E67646F6D  # "kingdom": two processes that migrate at once take turns


async def migrate(connection: Any, schema: str | None, shown: str) -> list[str]:
    """Apply what is missing, in one transaction; return the names of what was applied."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if schema is not None:
            quoted = '"' + schema.replace('"', '""') + '"'
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
            await connection.execute(f"SET LOCAL search_path TO {quoted}")
        applied = await _applied(connection, schema)
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


async def check_version(connection: Any, schema: str | None, shown: str) -> None:
    """Raise :class:`SchemaTooNew` when a newer version of the code has migrated this database."""
    _refuse_newer(await _applied(connection, schema), shown)


async def _applied(connection: Any, schema: str | None) -> set[int]:
    table = "kingdom_migration" if schema is None else '"' + schema.replace('"', '""') + '".kingdom_migration'
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        return set()
    return {row["number"] for row in await connection.fetch(f"SELECT number FROM {table}")}  # noqa: S608


def _refuse_newer(applied: set[int], shown: str) -> None:
    newest = max((number for number, _, _ in migrations("postgresql")), default=0)
    if applied and max(applied) > newest:
        raise SchemaTooNew(
            f"{shown} was migrated to version {max(applied)}, this code knows up to {newest}: "
            "update kingdom here; nothing was changed"
        )
