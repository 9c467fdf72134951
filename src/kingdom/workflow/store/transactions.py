"""One transaction: aggregates, the stored events, and what goes to the bus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from kingdom.bus import Envelope
from kingdom.workflow.domain.events import UI_ONLY
from kingdom.workflow.store import repositories
from kingdom.workflow.store.repositories import AggregateTable, DatabaseSession, TableRepository
from kingdom.workflow.store.workflows import WorkflowRepository
from kingdom.workflow.store.works import WorkRepository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from kingdom.bus import EventBus
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.ports import Clock, RecordedEvent

A = TypeVar("A")
STREAM: Final = "workflow"


class InlineHandler(Protocol):
    """Handles events in the transaction that records them."""

    async def __call__(self, tx: WorkflowTransaction, events: Sequence[RecordedEvent]) -> list[bool]:
        """Handle events; return for each whether it was handled. The others go to the bus."""


class OpenedRepository(Generic[A]):
    """The attribute of a transaction with the repository of a table, opened when it is first used."""

    def __init__(self, table: AggregateTable[A]) -> None:
        self._table = table

    def __get__(self, tx: WorkflowTransaction, _: object = None) -> TableRepository[A]:
        opened = tx._opened.get(self._table.name)
        if opened is None:
            opened = tx._opened[self._table.name] = TableRepository(tx.session, self._table, tx._before_write)
        return opened


class WorkflowTransaction:
    """A transaction: everything saved and recorded in it is committed, or nothing."""

    def __init__(
        self, session: DatabaseSession, bus: EventBus, clock: Clock, inline: InlineHandler | None = None
    ) -> None:
        self.session = session
        self._bus = bus
        self._clock = clock
        self._inline = inline
        self._events: list[RecordedEvent] = []
        self.published: list[Envelope] = []  # what went to the bus, after flush()
        self.ends: list[Callable[[bool], None]] = []  # called at the end, with whether it committed
        self._before_commit: list[Callable[[], Awaitable[None]]] = []
        self._undoable = False  # whether run_or_undo() is active
        self._savepoint = False  # whether it has set a savepoint
        self._opened: dict[str, TableRepository[Any]] = {}  # by the name of the table

    gits = OpenedRepository(repositories.GITS)
    mcp_servers = OpenedRepository(repositories.MCP_SERVERS)
    templates = OpenedRepository(repositories.TEMPLATES)
    reports = OpenedRepository(repositories.REPORTS)
    checkpoints = OpenedRepository(repositories.CHECKPOINTS)
    work_trees = OpenedRepository(repositories.WORK_TREES)
    work_spaces = OpenedRepository(repositories.WORK_SPACES)
    landings = OpenedRepository(repositories.LANDINGS)

    @property
    def workflows(self) -> WorkflowRepository:
        """The workflows."""
        opened = self._opened.get(repositories.WORKFLOWS.name)
        if opened is None:
            opened = self._opened[repositories.WORKFLOWS.name] = WorkflowRepository(self.session, self._before_write)
        return cast("WorkflowRepository", opened)

    @property
    def works(self) -> WorkRepository:
        """The works and their tasks."""
        opened = self._opened.get(repositories.WORKS.name)
        if opened is None:
            opened = self._opened[repositories.WORKS.name] = WorkRepository(self.session, self._before_write)
        return cast("WorkRepository", opened)

    def _tables(self) -> list[TableRepository[Any]]:
        """Return the tables in use, always in the same order: two transactions that write both cannot deadlock."""
        return [self._opened[table.name] for table in repositories.TABLES if table.name in self._opened]

    def record(self, *events: RecordedEvent) -> None:
        """Record events: they are numbered, stored for the interface and published with the commit."""
        self._events += events

    def before_commit(self, action: Callable[[], Awaitable[None]]) -> None:
        """Run ``action`` in this transaction, after its events were handled inline.

        So what both change is written once.
        """
        self._before_commit.append(action)

    async def find_with_workflow(self, work_id: str, task_id: str) -> Work | None:
        """Return a Work with the tasks that a step needs, or None, and read its workflow with the same query."""
        return await self.works.find_at_work(work_id, task_id, self.workflows)

    async def count(self, name: str) -> int:
        """Return the next number of a counter, from 1. No two transactions get the same one, and there is no gap."""
        await self._before_write()
        ((_, number),) = await self.session.fetch(_sized_sql(_COUNT_EVENTS, 1, 0, ""), name, 1)
        return int(number)

    async def forget_counter(self, name: str) -> None:
        """Delete a counter."""
        await self._before_write()
        await self.session.fetch("DELETE FROM wf_counter WHERE name = ?", name)

    async def publish(self, stream: str, envelope: Envelope) -> None:
        """Publish to another stream of the bus with the commit, such as a command that becomes due later."""
        await self._before_write()
        await self._bus.publish(stream, envelope, tx=self.session.connection)

    async def consume(self, event_id: str) -> bool:
        """Consume an event of the bus in this transaction; return False if it cannot be handled (any more)."""
        return await self._bus.consume(STREAM, event_id, tx=self.session.connection)

    async def flush(self) -> None:
        """Handle events inline where possible, then write, number, store and publish. The commit follows."""
        for_bus = await self._handle_inline()
        for action in self._before_commit:
            await action()
        for table in self._tables():
            await table.write_changes()
        if not self._events:
            return
        now = self._clock()
        numbers = await store_events(self.session, self._events, now)
        self.published = [
            _envelope(event, number, now)
            for event, number, wanted in zip(self._events, numbers, for_bus, strict=True)
            if wanted
        ]
        if self.published:
            await self._bus.publish(STREAM, self.published, tx=self.session.connection)

    async def _handle_inline(self) -> list[bool]:
        """Return, for each recorded event and each that follows from it, whether it goes to the bus.

        Events without a handler do not: somebody would have to consume them.
        """
        for_bus: list[bool] = []
        while len(for_bus) < len(self._events):
            fresh = self._events[len(for_bus) :]
            wanted = [type(event.event).__name__ not in UI_ONLY for event in fresh]
            if self._inline is not None and any(wanted):
                handled = iter(
                    await self._inline(self, [event for event, want in zip(fresh, wanted, strict=True) if want])
                )
                wanted = [want and not next(handled) for want in wanted]
            for_bus += wanted
        return for_bus

    async def run_or_undo(self, action: Callable[[], Awaitable[None]]) -> Exception | None:
        """Run ``action``; if it raises, undo what it wrote and recorded, and return the error."""
        count = len(self._events)
        pending = {name: table.pending_writes() for name, table in self._opened.items()}
        self._undoable = True
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - the caller decides what to do
            if self._savepoint:
                await self.session.fetch("ROLLBACK TO SAVEPOINT part")
            del self._events[count:]
            discarded, self._opened = self._opened, {}  # the action may have changed the objects that were read
            for name, writes in pending.items():
                if writes:
                    self._opened[name] = discarded[name].restored(writes)
            return error
        finally:
            self._undoable = False
            if self._savepoint:
                self._savepoint = False
                await self.session.fetch("RELEASE SAVEPOINT part")
        return None

    async def _before_write(self) -> None:
        """Set a savepoint before the first write of run_or_undo(); most actions write nothing before the flush."""
        if self._undoable and not self._savepoint:
            self._savepoint = True
            await self.session.fetch("SAVEPOINT part")


def _envelope(recorded: RecordedEvent, sequence: int, now: datetime) -> Envelope:
    return Envelope(
        type=type(recorded.event).__name__,
        payload=recorded.event.payload(),
        aggregate_type=recorded.aggregate_type,
        aggregate_id=recorded.aggregate_id,
        attributes={"sequence": sequence} | ({} if recorded.attempt is None else {"attempt": recorded.attempt}),
        occurred_at=now,
    )


# ── numbering and storing events ──────────────────────────────────────────────────────────────────────────────────

_POSITION_COUNTER: Final = ""  # no aggregate has this id
_encode_payload: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COUNT_EVENTS: Final = """
    INSERT INTO wf_counter (name, last) VALUES {counters}
    ON CONFLICT (name) DO UPDATE SET last = wf_counter.last + excluded.last RETURNING name, last
"""
_INSERT_EVENT: Final = "INSERT INTO wf_event (position, sequence, aggregate_id, type, payload, occurred_at, attempt)"
_INSERT_EVENTS: Final = f"{_INSERT_EVENT} VALUES {{events}}"
# Both in one statement where the database can: one round trip less per transaction.
_COUNT_AND_INSERT: Final = f"""
    WITH counted AS ({_COUNT_EVENTS}), stored AS (
        {_INSERT_EVENT}
        SELECT total.last - new.position, own.last - new.sequence, new.id, new.type, new.payload, new.at,
            new.attempt
        FROM (VALUES {{events}}) AS new (position, sequence, id, type, payload, at, attempt)
        JOIN counted AS own ON own.name = new.id
        JOIN counted AS total ON total.name = '{_POSITION_COUNTER}'
    )
    SELECT name, last FROM counted
"""  # noqa: S608  made of constants
_PLAIN_ROW: Final = "(?, ?, ?, ?, ?, ?, ?)"
_TYPED_ROW: Final = "(?::bigint, ?::bigint, ?::text, ?::text, ?::text, ?::text, ?::integer)"


class _EventRow(NamedTuple):
    """An event; its numbers count the events of this transaction behind it: all, and those of its aggregate."""

    position: int
    sequence: int
    aggregate_id: str
    type: str
    payload: str
    occurred_at: str
    attempt: int | None


async def store_events(session: DatabaseSession, events: Sequence[RecordedEvent], now: datetime) -> list[int]:
    """Number and store events; return the sequence number of each.

    Positions count over all events, sequences per aggregate; neither has gaps.
    """
    counts = Counter(event.aggregate_id for event in events)
    # The position counter sorts first: its row lock makes transactions commit in the order of their positions, so that
    # readers never see a later event before an earlier one. It is the last lock a transaction takes: no deadlock.
    counters = sorted({_POSITION_COUNTER: len(events), **counts}.items())
    rows = _event_rows(events, counts, now)
    sizes = len(counters), len(rows)
    if session.nests_inserts:
        counted = await session.fetch(_sized_sql(_COUNT_AND_INSERT, *sizes, _TYPED_ROW), *chain(*counters, *rows))
        last = {name: int(number) for name, number in counted}
    else:
        counted = await session.fetch(_sized_sql(_COUNT_EVENTS, *sizes, _PLAIN_ROW), *chain(*counters))
        last = {name: int(number) for name, number in counted}
        numbered = (
            (last[_POSITION_COUNTER] - row.position, last[row.aggregate_id] - row.sequence, *row[2:]) for row in rows
        )
        await session.fetch(_sized_sql(_INSERT_EVENTS, *sizes, _PLAIN_ROW), *chain(*numbered))
    return [last[row.aggregate_id] - row.sequence for row in rows]


def _event_rows(events: Sequence[RecordedEvent], counts: Counter[str], now: datetime) -> list[_EventRow]:
    at, left, rows = now.isoformat(), dict(counts), []
    for number, recorded in enumerate(events, 1):
        left[recorded.aggregate_id] -= 1
        rows.append(
            _EventRow(
                len(events) - number,
                left[recorded.aggregate_id],
                recorded.aggregate_id,
                type(recorded.event).__name__,
                _encode_payload(recorded.event.payload()),
                at,
                recorded.attempt,
            )
        )
    return rows


@cache
def _sized_sql(statement: str, counters: int, events: int, row: str) -> str:
    counted = ", ".join(["(?, ?)"] * counters)
    return statement.replace("{counters}", counted).replace("{events}", ", ".join([row] * events))
