"""One unit of work: aggregates, the events the interface shows, and what goes to the bus."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.bus import Envelope
from kingdom.workflow.domain.events import UI_ONLY
from kingdom.workflow.store import tables
from kingdom.workflow.store.repositories import TableRepository

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from kingdom.bus import EventBus
    from kingdom.workflow.domain.resources import Checkpoint, WorkSpace, WorkTree
    from kingdom.workflow.domain.sources import Git, McpServer
    from kingdom.workflow.domain.task import Report
    from kingdom.workflow.domain.template import WorkflowTemplate
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import Clock, OfWorkflow, Repository, Told
    from kingdom.workflow.store.sessions import Session

STREAM: Final = "workflow"
_EVERYTHING: Final = ""  # the counter of positions; no aggregate has this id
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LOCK: Final = 0x6B776600  # PostgreSQL's advisory lock for positions
_COUNT: Final = """
    INSERT INTO wf_counter (name, last) VALUES {rows}
    ON CONFLICT (name) DO UPDATE SET last = wf_counter.last + excluded.last RETURNING name, last
"""
_KEEP: Final = "INSERT INTO wf_event (position, aggregate_id, sequence, type, payload, occurred_at) VALUES {rows}"


class StoreTransaction:
    """See :class:`kingdom.workflow.ports.Transaction`."""

    def __init__(self, session: Session, bus: EventBus, clock: Clock) -> None:
        self.session = session
        self._bus = bus
        self._clock = clock
        self._told: list[Told] = []
        self.published: list[Envelope] = []  # what went to the bus, once flushed
        self.gits: Repository[Git] = TableRepository(session, tables.GITS)
        self.mcp_servers: Repository[McpServer] = TableRepository(session, tables.MCP_SERVERS)
        self.templates: Repository[WorkflowTemplate] = TableRepository(session, tables.TEMPLATES)
        self.workflows: Repository[Workflow] = TableRepository(session, tables.WORKFLOWS)
        self.works: OfWorkflow[Work] = TableRepository(session, tables.WORKS)
        self.reports: OfWorkflow[Report] = TableRepository(session, tables.REPORTS)
        self.checkpoints: OfWorkflow[Checkpoint] = TableRepository(session, tables.CHECKPOINTS)
        self.work_trees: OfWorkflow[WorkTree] = TableRepository(session, tables.WORK_TREES)
        self.work_spaces: OfWorkflow[WorkSpace] = TableRepository(session, tables.WORK_SPACES)

    def record(self, *told: Told) -> None:
        """Have events numbered, kept for the interface, and published, all with the commit."""
        self._told += told

    async def consume(self, event_id: str) -> bool:
        """End an event of the bus with this transaction; False when it is not there to be handled (any more)."""
        return await self._bus.consume(STREAM, event_id, tx=self.session.connection)

    async def flush(self) -> None:
        """Number, keep and publish what was recorded. The commit follows."""
        if not self._told:
            return
        told, self._told = self._told, []
        now = self._clock()
        if not self.session.orders_commits:
            # Whoever counts positions commits before the next one counts: so they are seen in their order.
            await self.session.fetch("SELECT pg_advisory_xact_lock(?)", _LOCK)
        numbers = await self._number(told)
        kept = [item for told_one, number in zip(told, numbers, strict=True) for item in _row(told_one, number, now)]
        await self.session.fetch(_rows(_KEEP, len(told), 6), *kept)
        # What no handler waits for is kept for the interface only: on the bus it would have to be taken off again.
        self.published = [
            _envelope(item, number.sequence, now)
            for item, number in zip(told, numbers, strict=True)
            if type(item.event).__name__ not in UI_ONLY
        ]
        if self.published:
            await self._bus.publish(STREAM, self.published, tx=self.session.connection)

    async def _number(self, told: Sequence[Told]) -> list[_Number]:
        """Take the next numbers, in one statement for all: positions over all, sequences per aggregate."""
        counts = Counter(item.aggregate_id for item in told)
        # Sorted, so that two transactions that count for the same aggregates never wait for each other crosswise.
        wanted = sorted({_EVERYTHING: len(told), **counts}.items())
        rows = await self.session.fetch(_rows(_COUNT, len(wanted), 2), *(part for row in wanted for part in row))
        counted = dict(wanted)
        following = {name: int(last) - counted[name] + 1 for name, last in rows}
        numbers = []
        for item in told:
            numbers.append(_Number(following[_EVERYTHING], following[item.aggregate_id]))
            following[_EVERYTHING] += 1
            following[item.aggregate_id] += 1
        return numbers


class _Number(NamedTuple):
    position: int
    sequence: int


def _row(told: Told, number: _Number, now: datetime) -> tuple[object, ...]:
    payload = _encode(told.event.payload())
    kind = type(told.event).__name__
    return number.position, told.aggregate_id, number.sequence, kind, payload, now.isoformat()


def _envelope(told: Told, sequence: int, now: datetime) -> Envelope:
    return Envelope(
        type=type(told.event).__name__,
        payload=told.event.payload(),
        aggregate_type=told.aggregate_type,
        aggregate_id=told.aggregate_id,
        attributes={"sequence": sequence} | ({} if told.attempt is None else {"attempt": told.attempt}),
        occurred_at=now,
    )


@cache
def _rows(statement: str, rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement.replace("{rows}", ", ".join([row] * rows))
