"""One transaction: aggregates, the events the interface shows, and what goes to the bus."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from kingdom.bus import Envelope
from kingdom.workflow.domain.events import UI_ONLY
from kingdom.workflow.store import repositories
from kingdom.workflow.store.repositories import TableRepository

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from kingdom.bus import EventBus
    from kingdom.workflow.domain.resources import Checkpoint, Git, McpServer, WorkSpace, WorkTree
    from kingdom.workflow.domain.work import Report, Work
    from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
    from kingdom.workflow.ports import Clock, RecordedEvent, Repository, WorkflowRepository


# One way to run a statement on either database: ``?`` for parameters, rows as tuples.


Row = Sequence[Any]


class DatabaseSession(Protocol):
    """An open transaction."""

    connection: Any  # the driver's: the bus publishes into it
    row_lock: str  # what a SELECT ends with that keeps others from changing the row
    nests_inserts: bool  # whether an INSERT may stand in a WITH

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""


class SqliteSession:
    """SQLite. Statements run where they are called: each takes microseconds, a thread in between would cost more."""

    row_lock = ""  # whoever writes is alone
    nests_inserts = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""
        return self.connection.execute(sql, values).fetchall()


class PostgresSession:
    """PostgreSQL, by asyncpg."""

    row_lock = " FOR UPDATE"
    nests_inserts = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run a statement and return its rows."""
        rows: Sequence[Row] = await self.connection.fetch(_numbered_parameters(sql), *values)
        return rows


@lru_cache(maxsize=256)
def _numbered_parameters(sql: str) -> str:
    """``?`` as PostgreSQL wants it: ``$1``, ``$2``, …"""
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)


# Numbering events, and keeping them for the interface.


_POSITION_COUNTER: Final = ""  # the counter of positions; no aggregate has this id
_encode_payload: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COUNT_EVENTS: Final = """
    INSERT INTO wf_counter (name, last) VALUES {counters}
    ON CONFLICT (name) DO UPDATE SET last = wf_counter.last + excluded.last RETURNING name, last
"""
_INSERT_EVENT: Final = "INSERT INTO wf_event (position, sequence, aggregate_id, type, payload, occurred_at)"
_INSERT_EVENTS: Final = f"{_INSERT_EVENT} VALUES {{events}}"
# Both at once, where a database can: one way to the server and back less for each transaction.
_COUNT_AND_INSERT: Final = f"""
    WITH counted AS ({_COUNT_EVENTS}), kept AS (
        {_INSERT_EVENT}
        SELECT everything.last - told.position, own.last - told.sequence, told.id, told.type, told.payload, told.at
        FROM (VALUES {{events}}) AS told (position, sequence, id, type, payload, at)
        JOIN counted AS own ON own.name = told.id
        JOIN counted AS everything ON everything.name = '{_POSITION_COUNTER}'
    )
    SELECT name, last FROM counted
"""  # noqa: S608  made of constants
_PLAIN_ROW: Final = "(?, ?, ?, ?, ?, ?)"
_TYPED_ROW: Final = "(?::bigint, ?::bigint, ?::text, ?::text, ?::text, ?::text)"


class _EventRow(NamedTuple):
    """An event, with how many of this transaction come behind it: of all, and of its aggregate."""

    position: int
    sequence: int
    aggregate_id: str
    type: str
    payload: str
    occurred_at: str


async def store_events(session: DatabaseSession, told: Sequence[RecordedEvent], now: datetime) -> list[int]:
    """Number events and keep them; returns the number of each in its aggregate.

    Positions count over all, sequences per aggregate; neither has a gap.
    """
    counts = Counter(item.aggregate_id for item in told)
    # The counter of positions comes first: whoever has it commits before the next one counts, so that events are
    # seen in their order. It is the last lock that is taken: nobody who has it waits for another.
    counters = sorted({_POSITION_COUNTER: len(told), **counts}.items())
    kept = _event_rows(told, counts, now)
    sizes = len(counters), len(kept)
    if session.nests_inserts:
        rows = await session.fetch(_sized_sql(_COUNT_AND_INSERT, *sizes, _TYPED_ROW), *chain(*counters, *kept))
        last = {name: int(number) for name, number in rows}
    else:
        last = {
            name: int(number)
            for name, number in await session.fetch(_sized_sql(_COUNT_EVENTS, *sizes, _PLAIN_ROW), *chain(*counters))
        }
        numbered = (
            (last[_POSITION_COUNTER] - item.position, last[item.aggregate_id] - item.sequence, *item[2:])
            for item in kept
        )
        await session.fetch(_sized_sql(_INSERT_EVENTS, *sizes, _PLAIN_ROW), *chain(*numbered))
    return [last[item.aggregate_id] - item.sequence for item in kept]


def _event_rows(told: Sequence[RecordedEvent], counts: Counter[str], now: datetime) -> list[_EventRow]:
    at, left, made = now.isoformat(), dict(counts), []
    for place, item in enumerate(told, 1):
        left[item.aggregate_id] -= 1
        event = item.event
        made.append(
            _EventRow(
                len(told) - place,
                left[item.aggregate_id],
                item.aggregate_id,
                type(event).__name__,
                _encode_payload(event.payload()),
                at,
            )
        )
    return made


@cache
def _sized_sql(statement: str, counters: int, events: int, row: str) -> str:
    counted = ", ".join(["(?, ?)"] * counters)
    return statement.replace("{counters}", counted).replace("{events}", ", ".join([row] * events))


# One unit of work: aggregates, the events the interface shows, and what goes to the bus.


A = TypeVar("A")
STREAM: Final = "workflow"


class InlineHandler(Protocol):
    """Handles events in the transaction that records them, where that is possible."""

    async def __call__(self, tx: StoreTransaction, events: Sequence[RecordedEvent]) -> list[bool]:
        """Handle events; for each whether that was done. What was not goes to the bus."""


class StoreTransaction:
    """See :class:`kingdom.workflow.ports.WorkflowTransaction`."""

    def __init__(
        self, session: DatabaseSession, bus: EventBus, clock: Clock, inline: InlineHandler | None = None
    ) -> None:
        self.session = session
        self._bus = bus
        self._clock = clock
        self._inline = inline
        self._told: list[RecordedEvent] = []
        self.published: list[Envelope] = []  # what went to the bus, once flushed
        self.ends: list[Callable[[bool], None]] = []  # called when it is over: True when it committed
        self._before_commit: list[Callable[[], Awaitable[None]]] = []
        self._in_part = False  # whether what happens now may have to be taken back,
        self._marked = False  # and whether there is a mark in the database to go back to
        self._open_repositories()

    def _open_repositories(self) -> None:
        self._tables: list[TableRepository[Any]] = []
        self.gits: Repository[Git] = self._open(repositories.GITS)
        self.mcp_servers: Repository[McpServer] = self._open(repositories.MCP_SERVERS)
        self.templates: Repository[WorkflowTemplate] = self._open(repositories.TEMPLATES)
        self.workflows: Repository[Workflow] = (workflows := self._open(repositories.WORKFLOWS))
        self.works: WorkflowRepository[Work] = (works := self._open(repositories.WORKS))
        self._workflows, self._works = workflows, works
        self.reports: WorkflowRepository[Report] = self._open(repositories.REPORTS)
        self.checkpoints: WorkflowRepository[Checkpoint] = self._open(repositories.CHECKPOINTS)
        self.work_trees: WorkflowRepository[WorkTree] = self._open(repositories.WORK_TREES)
        self.work_spaces: WorkflowRepository[WorkSpace] = self._open(repositories.WORK_SPACES)

    def _open(self, table: repositories.AggregateTable[A]) -> TableRepository[A]:
        made = TableRepository(self.session, table, self._writing)
        self._tables.append(made)
        return made

    def record(self, *told: RecordedEvent) -> None:
        """Have events numbered, kept for the interface, and published, all with the commit."""
        self._told += told

    def before_commit(self, action: Callable[[], Awaitable[None]]) -> None:
        """Have something done in this transaction, after the events it records were handled, where that is possible."""
        self._before_commit.append(action)

    async def find_with_workflow(self, work_id: str) -> Work | None:
        """A Work, or None; its workflow is read with it, for who will ask for that as well."""
        return await self._works.find_with_parent(work_id, self._workflows)

    async def consume(self, event_id: str) -> bool:
        """End an event of the bus with this transaction; False when it is not there to be handled (any more)."""
        return await self._bus.consume(STREAM, event_id, tx=self.session.connection)

    async def flush(self) -> None:
        """Handle what can be handled right here, then number, keep and publish. The commit follows."""
        for_bus = await self._handle_inline()
        for action in self._before_commit:
            await action()
        for table in self._tables:
            await table.write_changes()
        if not self._told:
            return
        now = self._clock()
        numbers = await store_events(self.session, self._told, now)
        self.published = [
            _envelope(item, number, now)
            for item, number, wanted in zip(self._told, numbers, for_bus, strict=True)
            if wanted
        ]
        if self.published:
            await self._bus.publish(STREAM, self.published, tx=self.session.connection)

    async def _handle_inline(self) -> list[bool]:
        """For each event that is recorded, and each that comes of it: whether the bus has to have it.

        What no handler waits for is kept for the interface only: on the bus it would have to be taken off again.
        """
        for_bus: list[bool] = []
        while len(for_bus) < len(self._told):
            fresh = self._told[len(for_bus) :]
            wanted = [type(item.event).__name__ not in UI_ONLY for item in fresh]
            if self._inline is not None and any(wanted):
                handled = iter(
                    await self._inline(self, [item for item, want in zip(fresh, wanted, strict=True) if want])
                )
                wanted = [want and not next(handled) for want in wanted]
            for_bus += wanted
        return for_bus

    async def run_or_undo(self, action: Callable[[], Awaitable[None]]) -> Exception | None:
        """Do something; when it raises, take back what it wrote and recorded, and return what it raised."""
        told, saved = len(self._told), [table.pending_writes() for table in self._tables]
        self._in_part = True
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - the caller decides what it means
            if self._marked:
                await self.session.fetch("ROLLBACK TO SAVEPOINT part")
            del self._told[told:]
            self._open_repositories()  # what was read may have been changed
            for table, kept in zip(self._tables, saved, strict=True):
                table.restore_writes(kept)
            return error
        finally:
            self._in_part = False
            if self._marked:
                self._marked = False
                await self.session.fetch("RELEASE SAVEPOINT part")
        return None

    async def _writing(self) -> None:
        """Before something is written: mark where to go back to. Most parts write nothing before they are over."""
        if self._in_part and not self._marked:
            self._marked = True
            await self.session.fetch("SAVEPOINT part")


def _envelope(told: RecordedEvent, sequence: int, now: datetime) -> Envelope:
    return Envelope(
        type=type(told.event).__name__,
        payload=told.event.payload(),
        aggregate_type=told.aggregate_type,
        aggregate_id=told.aggregate_id,
        attributes={"sequence": sequence} | ({} if told.attempt is None else {"attempt": told.attempt}),
        occurred_at=now,
    )
