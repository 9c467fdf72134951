"""One unit of work: aggregates, the events the interface shows, and what goes to the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kingdom.bus import Envelope
from kingdom.workflow.domain.events import UI_ONLY
from kingdom.workflow.store import tables
from kingdom.workflow.store.keeping import keep
from kingdom.workflow.store.repositories import TableRepository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
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

A = TypeVar("A")
STREAM: Final = "workflow"


class Inline(Protocol):
    """Handles events in the transaction that records them, where that is possible."""

    async def __call__(self, tx: StoreTransaction, told: Sequence[Told]) -> list[bool]:
        """Handle events; for each whether that was done. What was not goes to the bus."""


class StoreTransaction:
    """See :class:`kingdom.workflow.ports.Transaction`."""

    def __init__(self, session: Session, bus: EventBus, clock: Clock, inline: Inline | None = None) -> None:
        self.session = session
        self._bus = bus
        self._clock = clock
        self._inline = inline
        self._told: list[Told] = []
        self.published: list[Envelope] = []  # what went to the bus, once flushed
        self.ends: list[Callable[[bool], None]] = []  # called when it is over: True when it committed
        self._afterwards: list[Callable[[], Awaitable[None]]] = []
        self._in_part = False  # whether what happens now may have to be taken back,
        self._marked = False  # and whether there is a mark in the database to go back to
        self._open_repositories()

    def _open_repositories(self) -> None:
        self._tables: list[TableRepository[Any]] = []
        self.gits: Repository[Git] = self._open(tables.GITS)
        self.mcp_servers: Repository[McpServer] = self._open(tables.MCP_SERVERS)
        self.templates: Repository[WorkflowTemplate] = self._open(tables.TEMPLATES)
        self.workflows: Repository[Workflow] = (workflows := self._open(tables.WORKFLOWS))
        self.works: OfWorkflow[Work] = (works := self._open(tables.WORKS))
        self._workflows, self._works = workflows, works
        self.reports: OfWorkflow[Report] = self._open(tables.REPORTS)
        self.checkpoints: OfWorkflow[Checkpoint] = self._open(tables.CHECKPOINTS)
        self.work_trees: OfWorkflow[WorkTree] = self._open(tables.WORK_TREES)
        self.work_spaces: OfWorkflow[WorkSpace] = self._open(tables.WORK_SPACES)

    def _open(self, table: tables.Table[A]) -> TableRepository[A]:
        made = TableRepository(self.session, table, self._writing)
        self._tables.append(made)
        return made

    def record(self, *told: Told) -> None:
        """Have events numbered, kept for the interface, and published, all with the commit."""
        self._told += told

    def afterwards(self, action: Callable[[], Awaitable[None]]) -> None:
        """Have something done in this transaction, after the events it records were handled, where that is possible."""
        self._afterwards.append(action)

    async def find_with_workflow(self, work_id: str) -> Work | None:
        """A Work, or None; its workflow is read with it, for who will ask for that as well."""
        return await self._works.find_beside(work_id, self._workflows)

    async def consume(self, event_id: str) -> bool:
        """End an event of the bus with this transaction; False when it is not there to be handled (any more)."""
        return await self._bus.consume(STREAM, event_id, tx=self.session.connection)

    async def flush(self) -> None:
        """Handle what can be handled right here, then number, keep and publish. The commit follows."""
        for_bus = await self._handle_inline()
        for action in self._afterwards:
            await action()
        for table in self._tables:
            await table.write_changes()
        if not self._told:
            return
        now = self._clock()
        numbers = await keep(self.session, self._told, now)
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

    async def undo_unless(self, action: Callable[[], Awaitable[None]]) -> Exception | None:
        """Do something; when it raises, take back what it wrote and recorded, and return what it raised."""
        told, saved = len(self._told), [table.put_aside() for table in self._tables]
        self._in_part = True
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - the caller decides what it means
            if self._marked:
                await self.session.fetch("ROLLBACK TO SAVEPOINT part")
            del self._told[told:]
            self._open_repositories()  # what was read may have been changed
            for table, kept in zip(self._tables, saved, strict=True):
                table.take_over(kept)
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


def _envelope(told: Told, sequence: int, now: datetime) -> Envelope:
    return Envelope(
        type=type(told.event).__name__,
        payload=told.event.payload(),
        aggregate_type=told.aggregate_type,
        aggregate_id=told.aggregate_id,
        attributes={"sequence": sequence} | ({} if told.attempt is None else {"attempt": told.attempt}),
        occurred_at=now,
    )
