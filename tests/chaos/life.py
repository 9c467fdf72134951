"""One event's life, as a process lives it: open, publish, claim, and what becomes of the event.

Every step is announced before it begins and acknowledged after it returned, one line each on standard output, written
with ``writev`` so that faults injected into ``write`` never hit the announcements. Whoever stops the process half way
reads there what had been promised. A step that fails with an error of the bus is tried again, as a caller would.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar
from urllib.parse import urlsplit

import asyncpg

from kingdom.bus import BusError, Delivery, Envelope, connect, publish_sync
from kingdom.bus.eventbus import EventBus
from tests.chaos.grounds import connect_postgres

T = TypeVar("T")
STREAM = "life"
TRANSACTIONAL = "in a transaction of the caller"
_gate = ""
_begun: Counter[str] = Counter()
_TRIES = 4  # strace counts calls per thread, so that one fault may strike once in each


class Life:
    """The steps a life is made of."""

    def __init__(self, bus: EventBus, url: str, ids: list[str], lease: float) -> None:
        self.bus = bus
        self.url = url
        self.ids = ids
        self.lease = lease

    async def publish(self) -> None:
        events = [make_event(event_id) for event_id in self.ids]
        await self.step("publish", lambda: self.bus.publish(STREAM, events))

    async def publish_sync(self) -> None:
        """The same by a caller without an event loop."""
        events = [make_event(event_id) for event_id in self.ids]
        await self.step("publish", lambda: asyncio.to_thread(publish_sync, STREAM, events, url=self.url))

    async def publish_in_transaction(self) -> None:
        """The events, and a row of the caller's own for each, in the caller's transaction."""
        announce(TRANSACTIONAL)
        events = [make_event(event_id) for event_id in self.ids]
        work = self._sqlite_transaction if urlsplit(self.url).scheme == "sqlite" else self._postgres_transaction

        async def publish() -> None:
            try:
                await work(events)
            except (sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                raise CallersOwn(str(error)) from error

        await self.step("publish", publish)

    async def _sqlite_transaction(self, events: list[Envelope]) -> None:
        with closing(sqlite3.connect(urlsplit(self.url).path)) as connection, connection:
            await self.bus.publish(STREAM, events, tx=connection)
            connection.executemany("INSERT INTO chaos_effect VALUES (?, 'caller')", [(key,) for key in self.ids])

    async def _postgres_transaction(self, events: list[Envelope]) -> None:
        insert = "INSERT INTO chaos_effect (event_id, worker) VALUES ($1, 'caller')"
        connection = await connect_postgres(self.url)
        try:
            async with connection.transaction():
                await self.bus.publish(STREAM, events, tx=connection)
                await connection.executemany(insert, [(key,) for key in self.ids])
        finally:
            connection.terminate()

    async def claim(self) -> list[Delivery]:
        held = await self.step(
            "claim", lambda: self.bus.claim(STREAM, worker="life", limit=len(self.ids), lease=self.lease)
        )
        if len(held) != len(
            self.ids
        ):  # only after a fault: a claim that raised may hold the events until its lease ends
            raise Unfinished(f"claimed {len(held)} of {len(self.ids)}")
        return held

    async def done(self, held: list[Delivery]) -> None:
        await self.verdict("done", lambda: self.bus.settle(done=held))

    async def retry(self, held: list[Delivery]) -> None:
        await self.verdict("retry", lambda: self.bus.settle(retry=[(item, 0, "AGAIN", "once more") for item in held]))

    async def dead(self, held: list[Delivery]) -> None:
        await self.verdict("dead", lambda: self.bus.settle(dead=[(item, "BAD", "no use") for item in held]))

    async def release(self, held: list[Delivery]) -> None:
        await self.verdict("release", lambda: self.bus.release(held))

    async def extend(self, held: list[Delivery]) -> None:
        await self.verdict("extend", lambda: self.bus.extend(held, self.lease))

    async def requeue(self) -> None:
        moved = await self.step("requeue", lambda: self.bus.requeue(STREAM, self.ids))
        if moved != len(self.ids):
            raise Unfinished(f"requeued {moved} of {len(self.ids)}")

    async def purge(self) -> None:
        await self.step("purge", lambda: self.bus.purge(0))

    async def verdict(self, name: str, action: Callable[[], Awaitable[list[Delivery]]]) -> None:
        if lost := await self.step(name, action):
            raise Unfinished(f"{name}: {len(lost)} leases lost")

    async def step(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        for _ in range(_TRIES):
            begin(name)
            try:
                result = await action()
            except BusError as error:
                announce("raised", name, type(error).__name__)
                announce("seen", name, await self.look())
            else:
                announce("ok", name)
                return result
        raise Unfinished(f"{name} failed {_TRIES} times")

    async def look(self) -> int:
        """How many of the events the bus knows."""
        for _ in range(_TRIES):
            try:
                return sum([await self.bus.find(event_id) is not None for event_id in self.ids])
            except BusError as error:
                announce("raised", "find", type(error).__name__)
        raise Unfinished("find failed again and again")


class CallersOwn(BusError):
    """What the caller's own driver raised in the caller's own transaction."""


class Unfinished(Exception):
    """A fault took the event out of this life's hands; whoever recovers finds it."""


async def _done(life: Life) -> None:
    await life.publish()
    await life.done(await life.claim())


async def _sync(life: Life) -> None:
    await life.publish_sync()
    await life.done(await life.claim())


async def _transaction(life: Life) -> None:
    await life.publish_in_transaction()
    await life.done(await life.claim())


async def _retry(life: Life) -> None:
    await life.publish()
    await life.retry(await life.claim())
    await life.done(await life.claim())


async def _dead(life: Life) -> None:
    await life.publish()
    await life.dead(await life.claim())


async def _requeue(life: Life) -> None:
    await _dead(life)
    await life.requeue()
    await life.done(await life.claim())


async def _release(life: Life) -> None:
    await life.publish()
    held = await life.claim()
    await life.extend(held)
    await life.release(held)
    await life.done(await life.claim())


async def _purge(life: Life) -> None:
    await _done(life)
    await life.purge()


LIVES: dict[str, Callable[[Life], Awaitable[None]]] = {
    "done": _done,
    "retry": _retry,
    "dead": _dead,
    "requeue": _requeue,
    "release": _release,
    "purge": _purge,
    "transaction": _transaction,
    "sync": _sync,
}


def live(kind: str, url: str, ids: list[str], lease: float, gate: str = "") -> None:
    """Live one life from beginning to end; stop (SIGSTOP) before the step ``gate``, such as ``claim 2``, begins."""
    global _gate
    _gate = gate
    asyncio.run(_live(kind, url, ids, lease))


async def _live(kind: str, url: str, ids: list[str], lease: float) -> None:
    # One thread for blocking calls: strace counts calls per thread, and a walk must pass every one of them.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    bus = connect(url)
    for _ in range(_TRIES):
        begin("open")
        try:
            await bus.open()
        except BusError as error:
            announce("raised", "open", type(error).__name__)
            bus = connect(url)
        else:
            announce("ok", "open")
            break
    try:
        await LIVES[kind](Life(bus, url, ids, lease))
    except Unfinished as error:
        announce("unfinished", error)
    begin("close")
    await bus.close()
    announce("ok", "close")


def make_event(event_id: str) -> Envelope:
    """The event of a life; in a stream of documents, its payload is the document."""
    return Envelope(type="Lived", payload={"id": event_id, "type": "Lived", "text": "x" * 300}, event_id=event_id)


def begin(step: str) -> None:
    """Announce a step; stop here first if this is the gate."""
    _begun[step] += 1
    if _gate == f"{step} {_begun[step]}":
        os.kill(os.getpid(), signal.SIGSTOP)
    announce("begin", step)


def announce(*words: object) -> None:
    """Say how far the life has got."""
    os.writev(1, [(" ".join(map(str, words)) + "\n").encode()])
