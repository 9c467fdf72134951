"""One unit of work: aggregates, the events the interface shows, and what goes to the bus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from kingdom.bus import Envelope
from kingdom.workflow.store import tables
from kingdom.workflow.store.repositories import TableRepository

if TYPE_CHECKING:
    from datetime import datetime

    from kingdom.bus import EventBus
    from kingdom.workflow.ports import Clock, Told
    from kingdom.workflow.store.sessions import Session

STREAM: Final = "workflow"
_EVERYTHING: Final = ""  # the counter of positions; no aggregate has this id
_LOCK: Final = 0x6B776600  # PostgreSQL's advisory lock for positions
_COUNT: Final = """
    INSERT INTO wf_counter (name, last) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET last = wf_counter.last + excluded.last RETURNING last
"""
_KEEP: Final = """
    INSERT INTO wf_event (position, aggregate_id, sequence, type, payload, occurred_at) VALUES (?, ?, ?, ?, ?, ?)
"""


class StoreTransaction:
    """See :class:`kingdom.workflow.ports.Transaction`."""

    def __init__(self, session: Session, bus: EventBus, clock: Clock) -> None:
        self.session = session
        self._bus = bus
        self._clock = clock
        self._told: list[Told] = []
        self.gits = TableRepository(session, tables.GITS)
        self.mcp_servers = TableRepository(session, tables.MCP_SERVERS)
        self.templates = TableRepository(session, tables.TEMPLATES)
        self.workflows = TableRepository(session, tables.WORKFLOWS)
        self.works = TableRepository(session, tables.WORKS)
        self.reports = TableRepository(session, tables.REPORTS)
        self.checkpoints = TableRepository(session, tables.CHECKPOINTS)
        self.work_trees = TableRepository(session, tables.WORK_TREES)
        self.work_spaces = TableRepository(session, tables.WORK_SPACES)

    def record(self, *told: Told) -> None:
        """Have events numbered, kept for the interface, and published, all with the commit."""
        self._told += told

    async def flush(self) -> None:
        """Number, keep and publish what was recorded. The commit follows."""
        if not self._told:
            return
        told, self._told = self._told, []
        now = self._clock()
        if not self.session.orders_commits:
            # Whoever counts positions commits before the next one counts: so they are seen in their order.
            await self.session.fetch("SELECT pg_advisory_xact_lock(?)", _LOCK)
        envelopes = [await self._keep(item, now) for item in told]
        await self._bus.publish(STREAM, envelopes, tx=self.session.connection)

    async def _keep(self, told: Told, now: datetime) -> Envelope:
        payload, kind = told.event.payload(), type(told.event).__name__
        ((position,),) = await self.session.fetch(_COUNT, _EVERYTHING, 1)
        ((sequence,),) = await self.session.fetch(_COUNT, told.aggregate_id, 1)
        text = json.dumps(payload, ensure_ascii=False)
        await self.session.fetch(_KEEP, position, told.aggregate_id, sequence, kind, text, now.isoformat())
        attributes = {"sequence": sequence} | ({} if told.attempt is None else {"attempt": told.attempt})
        return Envelope(
            type=kind,
            payload=payload,
            aggregate_type=told.aggregate_type,
            aggregate_id=told.aggregate_id,
            attributes=attributes,
            occurred_at=now,
        )
