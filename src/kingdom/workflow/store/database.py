"""What both stores share: the bus on the same database, migrations, and reading events."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeAlias

from kingdom.bus import connect
from kingdom.bus.urls import redact_url
from kingdom.workflow.errors import StoreError
from kingdom.workflow.ports import StoredEvent
from kingdom.workflow.store.repositories import TABLES
from kingdom.workflow.store.transactions import STREAM, InlineHandler, WorkflowTransaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from kingdom.bus import Envelope
    from kingdom.workflow.ports import Clock, EngineLock
    from kingdom.workflow.store.holds import EngineHolds, Holder
    from kingdom.workflow.store.repositories import DatabaseSession

PublishListener: TypeAlias = "Callable[[list[Envelope]], None]"
_SCHEMA_COUNTER: Final = "schema"  # the counter with the schema version; aggregate ids have a dash
_RECORD_OWNER: Final = """
    INSERT INTO wf_engine (id, owner, epoch, seen_at) VALUES (1, ?, 1, ?)
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, epoch = wf_engine.epoch + 1, seen_at = excluded.seen_at
    RETURNING epoch
"""
_SELECT_EVENTS: Final = "SELECT position, aggregate_id, sequence, type, payload, occurred_at, attempt FROM wf_event"


def open_store(url: str, clock: Clock) -> DatabaseStore:
    """Return the store at a URL; use it as ``async with open_store(url, clock) as store``."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from kingdom.workflow.store.sqlite import SqliteWorkflowStore

        return SqliteWorkflowStore(url, clock)
    if scheme in ("postgresql", "postgres"):
        from kingdom.workflow.store.postgresql import PostgresWorkflowStore

        return PostgresWorkflowStore(url, clock)
    raise StoreError(f"a workflow store is sqlite:///file.db or postgresql://…, not {scheme}:")


class DatabaseStore(ABC):
    """See :class:`kingdom.workflow.ports.WorkflowStore`."""

    dialect: ClassVar[str]  # of migrations that differ: ``004_names.<dialect>.sql``

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self.bus = connect(url)
        self.shown_url = redact_url(url)  # without its password, for error messages
        self._listeners: list[PublishListener] = []
        self.inline: InlineHandler | None = None  # set by the engine of this process
        self.holds: EngineHolds | None = None  # of the engine of this process, if it shares the store with others

    async def __aenter__(self) -> Self:
        await self.bus.open()
        try:
            await self._connect()
        except BaseException:
            await self.bus.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()
        await self.bus.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[WorkflowTransaction]:
        """Open a transaction: commit at the end of the block, roll back if it raises."""
        unit = None
        committed = False
        try:
            async with self.session() as session:
                unit = WorkflowTransaction(session, self.bus, self.clock, self.inline)
                yield unit
                await unit.flush()
                if self.holds is not None:
                    await self.holds.check(session)
            committed = True
        finally:
            for end in unit.ends if unit is not None else ():
                end(committed)
        if unit.published:
            for listener in self._listeners:
                listener(unit.published)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[WorkflowTransaction]:
        """Open a read-only transaction; writers do not wait for it."""
        async with self.session(readonly=True) as session:
            yield WorkflowTransaction(session, self.bus, self.clock)

    def on_publish(self, listener: PublishListener) -> Callable[[], None]:
        """Call ``listener`` with the envelopes that each commit publishes; return the function that undoes this.

        So an engine in the same process need not look for them.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────

    async def events(self, workflow_id: str | None, after: int, limit: int) -> list[StoredEvent]:
        """Return the events of a workflow after a sequence number, or of all after a position, in order."""
        async with self.session(readonly=True) as session:
            if workflow_id is None:
                rows = await session.fetch(
                    f"{_SELECT_EVENTS} WHERE position > ? ORDER BY position LIMIT ?", after, limit
                )
            else:
                rows = await session.fetch(
                    f"{_SELECT_EVENTS} WHERE aggregate_id = ? AND sequence > ? ORDER BY sequence LIMIT ?",
                    workflow_id, after, limit,
                )  # fmt: skip
        return [
            StoredEvent(position, owner, sequence, kind, json.loads(payload), datetime.fromisoformat(at), attempt)
            for position, owner, sequence, kind, payload, at, attempt in rows
        ]

    async def last_event_number(self, workflow_id: str | None) -> int:
        """Return the sequence number of a workflow's last event, or the last position of all; 0 if there is none."""
        async with self.session(readonly=True) as session:
            if workflow_id is None:
                rows = await session.fetch("SELECT max(position) FROM wf_event")
            else:
                rows = await session.fetch("SELECT max(sequence) FROM wf_event WHERE aggregate_id = ?", workflow_id)
        return int(rows[0][0] or 0)

    # ── engine ────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    async def lock_engine(self) -> EngineLock | None:
        """Take the engine lock; return None if another process has it."""

    @abstractmethod
    def share(self, home: Path, seconds: float) -> None:
        """Let an engine of this home run beside those of other homes, with leases of ``seconds``, if it can be."""

    @abstractmethod
    async def engine_running(self) -> bool:
        """Return whether a process has the engine lock."""

    @abstractmethod
    async def holder(self, workflow_id: str) -> Holder | None:
        """Return the engine that holds a workflow, if engines share the store."""

    async def record_engine(self, owner: str, now: float) -> int:
        """Record who has the lock; return how many have had it."""
        async with self.session() as session:
            ((epoch,),) = await session.fetch(_RECORD_OWNER, owner, now)
        return int(epoch)

    async def engine_owner(self) -> tuple[str, float]:
        """Return who has, or had, the lock, and since when."""
        async with self.session(readonly=True) as session:
            rows = await session.fetch("SELECT owner, seen_at FROM wf_engine")
        return (str(rows[0][0]), float(rows[0][1])) if rows else ("unknown", 0.0)

    # ── schema ────────────────────────────────────────────────────────────────────────────────────────────────

    async def setup(self) -> list[str]:
        """Create or migrate the tables, including those of the bus; return what was applied. May be repeated."""
        applied = await self.bus.setup()
        await self.bus.declare(STREAM, ordered=True, dead_head="park")
        async with self.session() as session:
            applied += await self._migrate(session)
        return applied

    async def _migrate(self, session: DatabaseSession) -> list[str]:
        have = await self._schema_version(session)
        applied: list[str] = []
        scripts = _migrations(self.dialect)
        if have > len(scripts):
            raise StoreError(
                f"the store at {self.shown_url} has version {have} of its tables, this version of kingdom knows "
                f"{len(scripts)}: update kingdom; nothing was touched"
            )
        for name, statements in scripts[have:]:
            for statement in statements:
                await session.fetch(statement)
            applied.append(name)
        if applied:
            await session.fetch("DELETE FROM wf_counter WHERE name = ?", _SCHEMA_COUNTER)
            await session.fetch("INSERT INTO wf_counter (name, last) VALUES (?, ?)", _SCHEMA_COUNTER, len(scripts))
        return applied

    async def _schema_version(self, session: DatabaseSession) -> int:
        if not await self._has_tables(session):
            return 0
        rows = await session.fetch("SELECT last FROM wf_counter WHERE name = ?", _SCHEMA_COUNTER)
        return int(rows[0][0]) if rows else 0

    # ── per database ──────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def session(self, *, readonly: bool = False) -> AbstractAsyncContextManager[DatabaseSession]:
        """Open a transaction: commit at the end of the block, roll back if it raises."""

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @abstractmethod
    async def _has_tables(self, session: DatabaseSession) -> bool: ...


def _migrations(dialect: str) -> list[tuple[str, list[str]]]:
    """Return the name and statements of every migration, in order. ``name.<dialect>.sql`` is for one database only."""
    found = sorted((path.stem, path) for path in (Path(__file__).parent / "migrations").glob("*.sql"))
    parts = [(*name.partition("."), path) for name, path in found]
    return [(name, _statements(path.read_text())) for name, _, only, path in parts if only in ("", dialect)]


def _statements(script: str) -> list[str]:
    plain = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    once = [part.strip() for part in plain.split(";") if part.strip()]
    if "{table}" not in plain:
        return once
    return [part.replace("{table}", table.name) for table in TABLES for part in once]
