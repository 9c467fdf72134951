"""Snapshots on a real Kafka broker: a stream is opened from the last one, and what came before is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, TransportUnavailable, connect
from kingdom.bus.transports.kafka import KafkaTransport, _shard, _snapshots
from kingdom.bus.transports.kafka._clients import ProducedRecord

pytestmark = pytest.mark.kafka

STREAM = "orders"


@pytest.fixture
async def bus(kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventBus]:
    monkeypatch.setattr(_shard, "_GROWTH", 0)
    async with connect(f"{kafka_url}&snapshot=3000") as bus:
        await bus.setup()
        await bus.declare(STREAM, ordered=True)
        yield bus


def transport_of(bus: EventBus) -> KafkaTransport:
    assert isinstance(bus.transport, KafkaTransport)
    return bus.transport


def prefix_of(bus: EventBus) -> str:
    return transport_of(bus)._settings.prefix


async def shard_of(bus: EventBus) -> _shard.Shard:
    return await (await transport_of(bus)._stream(STREAM)).shard(0)


async def bounds(bus: EventBus, ending: str = "") -> tuple[int, int]:
    """The first offset of a topic, and the next one."""
    clients, topic = transport_of(bus)._clients, prefix_of(bus) + STREAM + ending
    return (await clients.first_offsets([(topic, 0)]))[0], (await clients.end_offsets([(topic, 0)]))[0]


async def work(bus: EventBus, rounds: int) -> None:
    """Let events live through every state."""
    for _ in range(rounds):
        await bus.publish(STREAM, [Envelope(type="Placed", aggregate_id=str(number)) for number in range(4)])
        done, also, again, dead, *_ = await bus.claim(STREAM, worker="w", limit=4, types=["Placed"])
        await bus.settle(done=[done, also], retry=[(again, 0, "AGAIN", "because")], dead=[dead])


async def snapshots_are_written(bus: EventBus) -> None:
    """Wait until everything before the last but one was deleted."""
    async with asyncio.timeout(60):
        while not (await bounds(bus, "-ledger"))[0]:
            await work(bus, 2)


async def same_state(one: EventBus, other: EventBus) -> bool:
    shards = [await shard_of(bus) for bus in (one, other)]
    for shard in shards:
        while shard._snapshotting:  # it appends to the ledger when it is done
            await asyncio.sleep(0.01)
    for shard in shards:
        await shard.catch_up()
    return _snapshots.lines_of(shards[0].state) == _snapshots.lines_of(shards[1].state)


async def test_a_bus_that_opens_with_a_snapshot_has_the_same_state(bus: EventBus, kafka_url: str) -> None:
    await snapshots_are_written(bus)
    [held] = await bus.claim(STREAM, worker="holder", limit=1, lease=600)
    async with connect(kafka_url) as other:
        assert await same_state(bus, other)
        assert (await shard_of(other)).state.snapshots
        assert [item.event_id for item in await other.recall(STREAM, worker="holder")] == [held.event_id]
        letters = await other.dead(STREAM, 3)
        assert [letter.envelope.type for letter in letters] == ["Placed"] * 3
        claimed = await other.claim(STREAM, worker="w", limit=2)
        assert [item.envelope.type for item in claimed] == ["Placed"] * 2
        assert await same_state(bus, other)


async def test_finished_events_are_found_by_a_bus_that_opens_with_a_snapshot(bus: EventBus, kafka_url: str) -> None:
    first = Envelope(type="First", payload={"total": 5})
    await bus.publish(STREAM, first)
    await bus.settle(done=await bus.claim(STREAM, worker="w"))
    await snapshots_are_written(bus)
    async with connect(kafka_url) as other:
        record = await other.find(first.event_id)
        assert record is not None
        assert (record.status, record.envelope.payload) == ("DONE", {"total": 5})
        assert await other.publish(STREAM, first) == []
        assert await other.requeue(STREAM, [first.event_id]) == 1


async def test_what_was_purged_is_deleted_with_the_next_snapshots(bus: EventBus) -> None:
    await work(bus, 3)
    await bus.publish(STREAM, Envelope(type="Waits", aggregate_id="waits"))
    waits = (await bounds(bus))[1] - 1
    while unfinished := await bus.claim(STREAM, worker="w", limit=100, types=["Placed"]):
        await bus.settle(done=unfinished)
    await asyncio.sleep(0.01)  # the age of what is purged is counted in milliseconds
    await bus.purge(0, dead=True)
    async with asyncio.timeout(60):
        while (await bounds(bus))[0] < waits:
            await work(bus, 2)
    assert (await bounds(bus))[0] == waits
    assert [item.envelope.type for item in await bus.claim(STREAM, worker="w", types=["Waits"])] == ["Waits"]


async def test_half_a_snapshot_does_not_count(bus: EventBus, kafka_url: str) -> None:
    """Its writer died."""
    await snapshots_are_written(bus)
    topic = prefix_of(bus) + STREAM + "-snapshot"
    half = ProducedRecord(None, b"\0", [("snapshot", b"abc 0 2 999999")])
    await transport_of(bus)._clients.produce(topic, [half], None)
    async with connect(kafka_url) as other:
        assert await same_state(bus, other)


async def test_a_snapshot_whose_writer_slept_is_not_taken_for_the_last(bus: EventBus, kafka_url: str) -> None:
    shard = await shard_of(bus)
    early = _snapshots.lines_of(shard.state)
    await snapshots_are_written(bus)
    known = list(shard.state.snapshots)
    await shard._write_snapshot(early)
    assert shard.state.snapshots[0] >= known[0]
    async with connect(kafka_url) as other:
        assert await same_state(bus, other)


async def test_a_process_that_was_overtaken_by_the_deletion_loads_the_snapshot(bus: EventBus, kafka_url: str) -> None:
    async with connect(kafka_url) as other:
        shard = await shard_of(other)
        await shard.catch_up()
        topics: Any = shard._topics
        position = shard.state.ledger_position
        transport_of(other)._reader.leave([topics.data, topics.ledger])  # it sleeps
        await snapshots_are_written(bus)
        transport_of(other)._reader.follow([(topics.data, shard._read_to), (topics.ledger, position)], shard._feed)
        async with asyncio.timeout(60):
            while not shard.state.snapshots:
                await asyncio.sleep(0.01)
        assert await same_state(bus, other)
        assert (await other.depth())[STREAM][:3] == (await bus.depth())[STREAM][:3]


@pytest.mark.parametrize("failures", [0, 2])
async def test_who_looks_while_the_snapshot_is_loaded_waits_for_it(
    bus: EventBus, kafka_url: str, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Also when the brokers are away while it is loaded."""
    errors = [TransportUnavailable("the brokers are away") for _ in range(failures)]
    async with connect(kafka_url) as other:
        shard = await shard_of(other)
        await shard.catch_up()
        topics: Any = shard._topics
        position, reach, load, asked = shard.state.ledger_position, shard.reach, shard.open, asyncio.Event()

        async def noted_reach(data: int, ledger: int) -> None:
            asked.set()
            await reach(data, ledger)

        async def late_load() -> None:
            await asked.wait()
            if errors:
                raise errors.pop()
            await load()

        monkeypatch.setattr(shard, "reach", noted_reach)
        monkeypatch.setattr(shard, "open", late_load)
        transport_of(other)._reader.leave([topics.data, topics.ledger])
        await snapshots_are_written(bus)
        transport_of(other)._reader.follow([(topics.data, shard._read_to), (topics.ledger, position)], shard._feed)
        async with asyncio.timeout(60):
            while shard._failure is None:
                await asyncio.sleep(0.01)
            assert (await other.depth())[STREAM][:3] == (await bus.depth())[STREAM][:3]
        assert not errors


async def test_finished_events_beyond_those_remembered_are_forgotten(kafka_url: str) -> None:
    async with connect(f"{kafka_url}&remember=3") as bus:
        await bus.setup()
        several = [Envelope(type="Placed", event_id=f"event-{number}") for number in range(5)]
        for envelope in several:
            await bus.publish(STREAM, envelope)
            await bus.settle(done=await bus.claim(STREAM, worker="w"))
        assert await bus.publish(STREAM, several) == ["event-0", "event-1"]
