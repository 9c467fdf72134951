"""One event at a time: the short way to a connection that is at hand, and the long way when something is in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, connect

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
    for _ in range(10):  # connections are made and prepared on the way
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


async def test_connections_that_die_while_events_are_published_cost_none(bus: EventBus, sql: Any) -> None:
    events = [order() for _ in range(200)]
    told: list[str] = []

    async def publish(some: list[Envelope]) -> None:
        for event in some:
            told.extend(await bus.publish(STREAM, event))

    publishing = asyncio.gather(*(publish(events[start::4]) for start in range(4)))
    while not publishing.done():
        await sql.execute(KILL)
        await asyncio.sleep(0.01)
    await publishing
    stored = {row["event_id"] for row in await sql.fetch("SELECT event_id FROM outbox_event")}
    assert stored == {event.event_id for event in events}
    assert set(told) <= stored
    assert len(told) == len(set(told))


async def test_a_publish_that_is_cancelled_leaves_a_bus_that_works(bus: EventBus, sql: Any) -> None:
    await bus.publish(STREAM, order())
    await bus.publish(STREAM, order())  # prepared by now
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
