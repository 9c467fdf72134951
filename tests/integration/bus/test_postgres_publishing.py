"""Publishing to PostgreSQL while connections break, calls are cancelled, and streams become ordered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, connect
from kingdom.bus.transports.postgresql import _publisher
from tests.support.cutting import Wire, wire_to

STREAM = "orders"
KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kingdom'"


@pytest.fixture
def bus(postgres_bus: EventBus) -> EventBus:
    return postgres_bus


def order() -> Envelope:
    return Envelope(type="OrderPlaced", payload={"n": 1})


async def pending(bus: EventBus) -> int:
    return (await bus.depth())[STREAM].pending


@pytest.mark.parametrize("query", ["", "&pool=1", "&pgbouncer=on"])
async def test_however_many_publish_at_once_each_is_told_of_its_own(
    bus: EventBus, postgres_url: str, query: str
) -> None:
    async with connect(postgres_url + query) as many:
        events = [order() for _ in range(40)]
        told = await asyncio.gather(*(many.publish(STREAM, event) for event in events))
        assert told == [[event.event_id] for event in events]
        again = await asyncio.gather(*(many.publish(STREAM, event) for event in events))
        assert again == [[]] * 40
    assert await pending(bus) == 40


async def test_of_two_that_publish_one_envelope_at_once_one_is_told(bus: EventBus) -> None:
    for _ in range(10):  # connections are made on the way
        event = order()
        told = await asyncio.gather(bus.publish(STREAM, event), bus.publish(STREAM, event))
        assert sorted(told) == [[], [event.event_id]]
    assert await pending(bus) == 10


async def test_an_envelope_goes_into_as_many_streams_as_one_likes(bus: EventBus) -> None:
    event = order()
    assert [await bus.publish(stream, event) for stream in ("a", "b", "a")] == [[event.event_id], [event.event_id], []]


async def test_a_connection_that_died_while_nobody_used_it_is_not_noticed(bus: EventBus, sql: Any) -> None:
    for number in range(1, 6):
        assert len(await bus.publish(STREAM, order())) == 1
        assert len(await bus.publish(STREAM, order())) == 1
        await sql.execute(KILL)
        assert await pending(bus) == 2 * number


async def test_connections_that_die_while_events_are_published_cost_none(
    bus: EventBus, postgres_url: str, sql: Any
) -> None:
    events = [order() for _ in range(200)]
    told: list[str] = []
    progress = asyncio.Event()

    async def publish(dying: EventBus, some: list[Envelope]) -> None:
        for event in some:
            told.extend(await dying.publish(STREAM, event))
            progress.set()

    async with connect(postgres_url, connect_timeout=100) as dying:  # however slow the machine
        publishing = asyncio.gather(*(publish(dying, events[start::4]) for start in range(4)))
        publishing.add_done_callback(lambda _: progress.set())
        killed = 0
        while not publishing.done():  # whenever one has come through, the others are on their way
            progress.clear()
            killed += len(await sql.fetch(KILL))
            await progress.wait()
        await publishing
    assert killed >= 10
    stored = {row["event_id"] for row in await sql.fetch("SELECT event_id FROM outbox_event")}
    assert stored == {event.event_id for event in events}
    assert sorted(told) == sorted(stored)  # also of those whose answer was lost with its connection


async def test_a_publish_that_is_cancelled_leaves_a_bus_that_works(bus: EventBus, sql: Any) -> None:
    await bus.publish(STREAM, order())
    await bus.publish(STREAM, order())
    async with sql.transaction():
        await sql.execute("LOCK TABLE outbox_event IN EXCLUSIVE MODE")
        publishing = asyncio.create_task(bus.publish(STREAM, order()))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'kingdom'"
        while not await sql.fetchval(waits):
            await asyncio.sleep(0.005)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
    told = await asyncio.gather(*(bus.publish(STREAM, order()) for _ in range(8)))
    assert all(len(ids) == 1 for ids in told)
    assert await pending(bus) in (10, 11)  # what was cancelled may have been stored: nobody was told


class TestLostAnswers:
    """The server has stored everything, and the connection breaks before it can say so."""

    @pytest.fixture
    async def wire(self, bus: EventBus, postgres_url: str, tmp_path: Path) -> AsyncIterator[Wire]:
        async with wire_to(postgres_url, tmp_path) as wire:
            yield wire

    @pytest.mark.parametrize("number", [1, 2, 250])  # each goes its own way
    @pytest.mark.parametrize("warm", [False, True])
    async def test_who_published_is_told_that_the_events_are_new(
        self, bus: EventBus, wire: Wire, number: int, warm: bool
    ) -> None:
        events = [order() for _ in range(number)]
        async with connect(wire.url) as wired:
            for _ in range(3 * warm):
                await wired.publish("others", [order() for _ in range(number)])
            wire.cut_answer_to(b"COMMIT" if number > 100 else events[0].event_id.encode())
            assert await wired.publish(STREAM, events) == [event.event_id for event in events]
            assert wire.cut == 1
            assert await wired.publish(STREAM, events) == []
        assert await pending(bus) == number

    @pytest.mark.parametrize("number", [1, 2, 250])
    async def test_envelopes_that_were_published_before_are_not_new_for_that(
        self, bus: EventBus, wire: Wire, number: int
    ) -> None:
        events = [order() for _ in range(number)]
        await bus.publish(STREAM, events)
        async with connect(wire.url) as wired:
            wire.cut_answer_to(events[0].event_id.encode())
            assert await wired.publish(STREAM, events) == []
            assert wire.cut == 1

    async def test_whoever_waits_is_woken(self, wire: Wire) -> None:
        event = order()
        woken = asyncio.Event()
        async with connect(wire.url) as wired:
            wired.transport.subscribe(STREAM, woken.set)
            wire.cut_answer_to(event.event_id.encode())
            await wired.publish(STREAM, event)
            assert woken.is_set()


class TestDeclareWhilePublishing:
    """Declaring a stream ordered waits for the publishes that do not know of it yet."""

    async def test_order_holds_from_the_moment_that_declare_returns(
        self, bus: EventBus, postgres_url: str, sql: Any
    ) -> None:
        async with connect(postgres_url) as other:
            for number in range(5):
                stream = f"orders-{number}"
                for _ in range(3):
                    await other.publish(stream, order(), order())
                    await other.publish(stream, order())
                await bus.declare(stream, ordered=True)
                await other.publish(stream, order())
        assert await sql.fetchval("SELECT count(*) FROM outbox_event WHERE ordering_key IS NULL") == 0

    async def test_what_is_published_meanwhile_gets_its_place(self, bus: EventBus, postgres_url: str, sql: Any) -> None:
        async with connect(postgres_url) as other:
            declaring = asyncio.create_task(bus.declare(STREAM, ordered=True))
            published = 0
            while not declaring.done():
                await other.publish(STREAM, order())
                published += 1
            await declaring
        assert published > 0
        rows = await sql.fetch("SELECT ordering_key FROM outbox_event WHERE stream = $1", STREAM)
        assert [row["ordering_key"] for row in rows] == ["\x1f"] * published

    async def test_two_that_declare_at_once_both_wait(self, bus: EventBus, postgres_url: str, sql: Any) -> None:
        async with connect(postgres_url) as other, connect(postgres_url) as third:
            declaring = asyncio.create_task(bus.declare(STREAM, ordered=True))
            await third.publish(STREAM, order())
            while not await sql.fetchval("SELECT count(*) FROM outbox_stream"):
                await third.publish(STREAM, order())
            await other.declare(STREAM, ordered=True)
            await third.publish(STREAM, order())
            assert await sql.fetchval("SELECT count(*) FROM outbox_event WHERE ordering_key IS NULL") == 0
            await declaring

    async def test_an_ordered_stream_is_looked_up_each_time(self, bus: EventBus, postgres_url: str, sql: Any) -> None:
        await bus.declare(STREAM, ordered=True)
        async with connect(postgres_url) as other:
            for _ in range(3):
                await other.publish(STREAM, order())
            await bus.declare(STREAM, ordered=False)
            await other.publish(STREAM, order())
        keys = [row["ordering_key"] for row in await sql.fetch("SELECT ordering_key FROM outbox_event")]
        assert keys == [None] * 4


async def test_a_single_event_notifies_those_who_listen(
    bus: EventBus, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        _publisher, "_NOTIFY_INTERVAL_SECONDS", 0.0
    )  # each carries its notification, so that none is sent by a timer
    async with connect(postgres_url) as other:
        heard = asyncio.Event()
        other.transport.subscribe(STREAM, heard.set)
        await asyncio.wait_for(heard.wait(), 10)  # it listens
        for _ in range(3):
            heard.clear()
            await bus.publish(STREAM, order())
            await asyncio.wait_for(heard.wait(), 10)


@pytest.mark.parametrize("number", [1, 2, 250])
@pytest.mark.parametrize("how", ["publish", "transaction", "release"])
async def test_only_those_are_woken_that_take_one_of_the_types(
    bus: EventBus, postgres_url: str, sql: Any, number: int, how: str
) -> None:
    woken, marked = asyncio.Event(), asyncio.Event()

    async def send(name: str) -> None:
        events = [Envelope(name, {}) for _ in range(number)]
        if how == "transaction":
            async with sql.transaction():
                for one in events:
                    await bus.publish(STREAM, one, tx=sql)
        else:
            await bus.publish(STREAM, events)
        if how == "release":
            await bus.release(await bus.claim(STREAM, worker="w", limit=number, lease=60, types=[name]))

    async def until(event: asyncio.Event) -> None:
        async with asyncio.timeout(30):
            await event.wait()
        event.clear()

    async with connect(postgres_url) as other:
        other.subscribe(STREAM, woken.set, types=["OrderPaid", "OrderLost"])
        other.subscribe("marks", marked.set)
        await until(woken)  # as it begins to listen
        await until(marked)
        await send("OrderPlaced")
        await bus.transport._notifier.close()  # type: ignore[attr-defined]  # what is owed is sent now
        await bus.publish("marks", order())
        await until(marked)  # notifications come in the order of their commits
        assert not woken.is_set()
        await send("OrderPaid")
        await until(woken)


@pytest.mark.parametrize(("number", "length", "all_woken"), [(100, 20, False), (60, 190, True), (501, 10, True)])
async def test_types_that_do_not_fit_into_a_notification_wake_all(
    bus: EventBus, postgres_url: str, number: int, length: int, all_woken: bool
) -> None:
    woken, marked = asyncio.Event(), asyncio.Event()
    async with connect(postgres_url) as other, asyncio.timeout(30):
        other.subscribe(STREAM, woken.set, types=["OrderPaid"])
        other.subscribe("marks", marked.set)
        await woken.wait()  # as it begins to listen
        await marked.wait()
        woken.clear()
        marked.clear()
        await bus.publish(STREAM, [Envelope(f"Order{one}".ljust(length, "x"), {}) for one in range(number)])
        await bus.transport._notifier.close()  # type: ignore[attr-defined]  # what is owed is sent now
        await bus.publish("marks", order())
        await marked.wait()  # notifications come in the order of their commits
        assert woken.is_set() is all_woken
