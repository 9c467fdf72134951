"""What both stores share: the bus on the same database, migrations, reading events."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from kingdom.bus import connect
from kingdom.bus.eventbus import redact_url
from kingdom.workflow.errors import StoreError
from kingdom.workflow.ports import StoredEvent
from kingdom.workflow.store.repositories import TABLES
from kingdom.workflow.store.transactions import STREAM, InlineHandler, StoreTransaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from kingdom.bus import Envelope
    from kingdom.workflow.ports import Clock, EngineLock
    from kingdom.workflow.store.transactions import DatabaseSession


# What the stores share: the bus on the same database, migrations, and reading what the interface shows.


PublishListener: TypeAlias = "Callable[[list[Envelope]], None]"
_SCHEMA_COUNTER: Final = "schema"  # its counter; aggregate ids have a dash
_RECORD_OWNER: Final = """
    INSERT INTO wf_engine (id, owner, epoch, seen_at) VALUES (1, ?, 1, ?)
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, epoch = wf_engine.epoch + 1, seen_at = excluded.seen_at
    RETURNING epoch
"""
_SELECT_EVENTS: Final = "SELECT position, aggregate_id, sequence, type, payload, occurred_at FROM wf_event"


class DatabaseStore(ABC):
    """See :class:`kingdom.workflow.ports.WorkflowStore`."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self.bus = connect(url)
        self.shown_url = redact_url(url)  # without its password: errors are shown to whoever asks
        self._listeners: list[PublishListener] = []
        self.inline: InlineHandler | None = None  # set by the engine of this process

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

    async def setup(self) -> list[str]:
        """Make or migrate the tables, those of the bus included; safe to repeat. Returns what was applied now."""
        applied = await self.bus.setup()
        await self.bus.declare(STREAM, ordered=True, dead_head="park")
        async with self.session() as session:
            applied += await self._migrate(session)
        return applied

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[StoreTransaction]:
        """Begin; commits at the end of the block, rolls back when it raises."""
        unit = None
        committed = False
        try:
            async with self.session() as session:
                unit = StoreTransaction(session, self.bus, self.clock, self.inline)
                yield unit
                await unit.flush()
            committed = True
        finally:
            for end in unit.ends if unit is not None else ():
                end(committed)
        if unit.published:
            for listener in self._listeners:
                listener(unit.published)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[StoreTransaction]:
        """The same for who only looks: nobody who writes waits for it. Nothing is to be saved in it."""
        async with self.session(readonly=True) as session:
            yield StoreTransaction(session, self.bus, self.clock)

    def on_publish(self, listener: PublishListener) -> Callable[[], None]:
        """Have ``listener`` called with what each commit of this store put on the bus; returns the undo.

        So that an engine in the same process need not look for it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def events(self, workflow_id: str | None, after: int, limit: int) -> list[StoredEvent]:
        """The events of a workflow behind a sequence number, or of all behind a position, in order."""
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
            StoredEvent(position, owner, sequence, kind, json.loads(payload), datetime.fromisoformat(at))
            for position, owner, sequence, kind, payload, at in rows
        ]

    async def record_engine(self, owner: str, now: float) -> int:
        """Write down who has the lock; returns how many had it so far."""
        async with self.session() as session:
            ((epoch,),) = await session.fetch(_RECORD_OWNER, owner, now)
        return int(epoch)

    async def engine_owner(self) -> tuple[str, float]:
        """Who has, or had, the lock, and since when."""
        async with self.session(readonly=True) as session:
            rows = await session.fetch("SELECT owner, seen_at FROM wf_engine")
        return (str(rows[0][0]), float(rows[0][1])) if rows else ("unknown", 0.0)

    @abstractmethod
    async def lock_engine(self) -> EngineLock | None:
        """Take the lock of the engine; None when another has it."""

    async def _migrate(self, session: DatabaseSession) -> list[str]:
        have = await self._schema_version(session)
        applied: list[str] = []
        scripts = _migrations()
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

    @abstractmethod
    def session(self, *, readonly: bool = False) -> AbstractAsyncContextManager[DatabaseSession]:
        """An open transaction; commits at the end of the block, rolls back when it raises."""

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @abstractmethod
    async def _has_tables(self, session: DatabaseSession) -> bool: ...


def _migrations() -> list[tuple[str, list[str]]]:
    """Every migration, in order: its name and its statements."""
    folder = files("kingdom.workflow.store").joinpath("migrations")
    scripts = sorted((item.name, item.read_text()) for item in folder.iterdir() if item.name.endswith(".sql"))
    return [(name.removesuffix(".sql"), _statements(text)) for name, text in scripts]


def _statements(script: str) -> list[str]:
    plain = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    once = [part.strip() for part in plain.split(";") if part.strip()]
    if "{table}" not in plain:
        return once
    return [part.replace("{table}", table.name) for table in TABLES for part in once]


# Opening a store by its URL.


def open_store(url: str, clock: Clock) -> DatabaseStore:
    """The store at a URL: ``async with open_store(url, clock) as store``."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from kingdom.workflow.store.sqlite import SqliteStore

        return SqliteStore(url, clock)
    if scheme in ("postgresql", "postgres"):
        from kingdom.workflow.store.postgresql import PostgresStore

        return PostgresStore(url, clock)
    raise StoreError(f"a workflow store is sqlite:///file.db or postgresql://…, not {scheme}:")
