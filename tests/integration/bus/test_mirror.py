"""The mirror from topics of other programs into a stream, with a real Kafka broker."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from kingdom.bus import BusError, Envelope, EventBus, EventRouter, InvalidOption, Mirror, Relay, connect
from kingdom.bus.mirror import REFUSED
from kingdom.bus.transports.kafka import KafkaTransport
from kingdom.cli import app
from tests.support import mirror_victim
from tests.support.forking import fate
from tests.support.kafka import KafkaBroker

pytestmark = pytest.mark.kafka


@pytest.fixture
async def kafka(kafka_url: str) -> AsyncIterator[EventBus]:
    async with connect(kafka_url) as bus:
        yield bus


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[EventBus]:
    async with connect(f"sqlite:///{tmp_path}/bus.db") as bus:
        await bus.setup()
        yield bus


class Topic:
    """A topic of another program."""

    def __init__(self, kafka: EventBus, name: str) -> None:
        assert isinstance(kafka.transport, KafkaTransport)
        clients = kafka.transport._clients
        self.name = clients.settings.prefix + name
        self._admin = clients._admin
        self._producer = Producer({"bootstrap.servers": clients.settings.servers})

    async def create(self, partitions: int = 1) -> Topic:
        for future in self._admin.create_topics([NewTopic(self.name, partitions, 1)]).values():
            await asyncio.wrap_future(future)
        return self

    def write(self, value: bytes | None, key: bytes | None = None, partition: int = 0, **headers: str) -> None:
        self._producer.produce(self.name, value, key, partition, headers=[*headers.items()])

    async def flush(self) -> None:
        assert await asyncio.to_thread(self._producer.flush, 30) == 0


async def mirror_all(kafka: EventBus, topic: Topic, target: EventBus, **options: Any) -> list[Envelope]:
    """Mirror what the topic has, and return what the stream got."""
    await topic.flush()
    given = {"group": topic.name, **options}  # other tests use the broker too
    await Mirror(kafka, [topic.name], target, "theirs", signals=False, **given).run(once=True)
    return [record.envelope async for record in target.records("theirs")]


async def test_events_keep_their_ids_and_fields(kafka: EventBus, target: EventBus) -> None:
    topic = await Topic(kafka, "a").create()
    ours = Envelope(type="Placed", payload={"total": 1}, attributes={"market": "KRW"}, trace_id="t1")
    topic.write(ours.to_json().encode(), b"7")
    topic.write(b'{"n": 2}', b"8", ce_specversion="1.0", ce_id="binary", ce_type="Paid", ce_aggregatetype="Order")
    structured = {"specversion": "1.0", "id": "structured", "type": "Sent", "source": "/x", "data": {"n": 3}}
    topic.write(json.dumps(structured).encode(), b"9")
    first, second, third = await mirror_all(kafka, topic, target)
    assert (first.to_dict(), first.aggregate_id) == (ours.to_dict(), "7")
    assert (second.event_id, second.type, second.payload, second.aggregate_type) == (
        "binary",
        "Paid",
        {"n": 2},
        "Order",
    )
    assert (third.event_id, third.type, third.payload, third.aggregate_id) == ("structured", "Sent", {"n": 3}, "9")


async def test_records_of_any_program_become_events(kafka: EventBus, target: EventBus) -> None:
    topic = await Topic(kafka, "a").create()
    topic.write(b'{"n": 1}', b"k")
    topic.write(b"[1, 2]")
    topic.write(b"plain text", b"x" * 300)
    topic.write(b"\xff\x00")
    topic.write(None, b"k")
    topic.write(b'{"n": 6}', ce_id="no good id", ce_type="x")
    got = await mirror_all(kafka, topic, target)
    values: list[Any] = [
        {"n": 1},
        {"value": [1, 2]},
        {"value": "plain text"},
        {"base64": "/wA="},
        {"value": None},
        {"n": 6},
    ]
    assert [event.payload for event in got] == values
    assert [event.event_id for event in got] == [f"{topic.name}:0:{offset}" for offset in range(6)]
    assert {event.type for event in got} == {topic.name}
    assert (got[0].aggregate_id, len(got[2].aggregate_id or "")) == ("k", 64)
    topic.write(b"{}")
    assert (await mirror_all(kafka, topic, target, event_type="Theirs"))[-1].type == "Theirs"


async def test_what_debezium_or_the_relay_wrote_comes_back_as_it_was(
    kafka: EventBus, target: EventBus, postgres_bus: EventBus
) -> None:
    topic = Topic(kafka, "order")
    placed = Envelope(type="Placed", aggregate_type="order", aggregate_id="1", payload={"total": 5})
    await postgres_bus.publish("orders", placed)
    placement = {"table.fields.additional.placement": "event_type:header:eventType"}
    router = EventRouter({**placement, "route.topic.replacement": topic.name.replace("order", "${routedByValue}")})
    await Relay(postgres_bus, kafka, ["orders"], router=router, signals=False).run(once=True)
    topic.write(b'"{\\"id\\": 1}"', b'"1"', id="4d47e190", eventType="OrderCreated")  # its payload is no envelope
    ours, theirs = await mirror_all(kafka, topic, target)
    assert (ours.to_dict(), ours.aggregate_id) == (placed.to_dict(), "1")
    assert (theirs.event_id, theirs.type, theirs.payload, theirs.aggregate_id) == (
        "4d47e190", "OrderCreated", {"id": 1}, "1",
    )  # fmt: skip


async def test_a_record_is_published_once_by_its_id(kafka: EventBus, target: EventBus) -> None:
    topic = await Topic(kafka, "a").create()
    for _ in range(3):
        topic.write(b'{"n": 1}', ce_specversion="1.0", ce_id="same", ce_type="Paid")
    await mirror_all(kafka, topic, target)
    got = await mirror_all(kafka, topic, target, group=f"{topic.name}-2")  # reads all of it again
    assert [event.event_id for event in got] == ["same"]


async def test_a_record_that_no_event_can_hold_is_pointed_to(kafka: EventBus, tmp_path: Path) -> None:
    topic = await Topic(kafka, "a").create()
    topic.write(b'{"n": 1}')
    topic.write(b'{"text": "' + b"x" * 5000 + b'"}')
    topic.write(b'{"n": 3}')
    async with connect(f"sqlite:///{tmp_path}/small.db", max_bytes=2000) as small:
        await small.setup()
        first, refused, third = await mirror_all(kafka, topic, small)
    assert (first.payload, third.payload) == ({"n": 1}, {"n": 3})
    assert (refused.type, refused.event_id) == (REFUSED, f"{topic.name}:0:1")
    assert (refused.payload["topic"], refused.payload["offset"]) == (topic.name, 1)


@pytest.mark.timeout(300)
async def test_a_mirror_that_is_killed_at_any_step_loses_and_doubles_nothing(
    kafka: EventBus, target: EventBus, kafka_url: str, stride: int
) -> None:
    topic = await Topic(kafka, "a").create()
    step, written = 0, 0
    while True:
        for number in range(written, written + 20):
            topic.write(json.dumps({"n": number}).encode())
        written += 20
        await topic.flush()
        code = await asyncio.to_thread(fate, mirror_victim.run, kafka_url, topic.name, target.url, "theirs", step)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        step += stride
    got = [record.envelope.payload["n"] async for record in target.records("theirs")]
    assert got == list(range(written))
    assert step > 0


async def test_mirrors_of_a_group_share_the_partitions(
    kafka: EventBus, target: EventBus, kafka_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.bus.transports.kafka._mirror.SESSION_SECONDS", 3.0)  # they hear of each other sooner
    topic = await Topic(kafka, "a").create(partitions=4)
    async with connect(kafka_url) as second:
        mirrors = [
            Mirror(source, [topic.name], target, "theirs", group=topic.name, signals=False)
            for source in (kafka, second)
        ]
        running = [asyncio.create_task(mirror.run()) for mirror in mirrors]
        written = 0
        async with asyncio.timeout(90):
            while not all(mirror.mirrored for mirror in mirrors):
                for partition in range(4):
                    topic.write(json.dumps({"n": written, "partition": partition}).encode(), partition=partition)
                    written += 1
                await topic.flush()
                await asyncio.sleep(0.1)
            while sum(mirror.mirrored for mirror in mirrors) < written:
                await asyncio.sleep(0.05)
        for mirror in mirrors:
            mirror.stop()
        await asyncio.gather(*running)
    got = [record.envelope.payload async for record in target.records("theirs")]
    assert len(got) == written
    for partition in range(4):
        own = [payload["n"] for payload in got if payload["partition"] == partition]
        assert own == sorted(own)


async def test_what_cannot_be_mirrored_is_said(kafka: EventBus, target: EventBus) -> None:
    with pytest.raises(InvalidOption, match="reads from kafka://"):
        Mirror(target, ["a"], target, "theirs")
    with pytest.raises(InvalidOption, match="name of a topic"):
        Mirror(kafka, [], target, "theirs")
    with pytest.raises(InvalidOption, match="batch=0"):
        Mirror(kafka, ["a"], target, "theirs", batch=0)
    with pytest.raises(BusError, match="there is no topic nowhere"):
        await Mirror(kafka, ["nowhere"], target, "theirs", signals=False).run(once=True)


async def test_the_command_mirrors_and_says_how_many(
    kafka: EventBus, target: EventBus, kafka_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = await Topic(kafka, "a").create()
    topic.write(b"{}")
    await topic.flush()
    arguments = ["bus", "mirror", "--from", kafka_url, "--topics", topic.name, "--to", target.url, "--stream", "theirs"]
    assert await asyncio.to_thread(app.run, [*arguments, "--group", topic.name, "--once"]) == 0
    assert capsys.readouterr().out == "1 event published in theirs\n"


async def test_an_outage_is_told_when_it_begins_and_when_it_is_over(
    tmp_path: Path, target: EventBus, postgres_bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    """By a mirror that waits for records, and by a relay that has some to send."""

    async def told(text: str) -> None:
        while not any(text in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.05)

    with KafkaBroker(tmp_path / "broker") as broker:
        async with connect(broker.url("shop"), connect_timeout=2) as kafka:
            await kafka.setup()
            topic = await Topic(kafka, "theirs").create()
            topic.write(b"1")
            await topic.flush()
            mirror = Mirror(kafka, [topic.name], target, "theirs", signals=False)
            relay = Relay(postgres_bus, kafka, ["ours"], signals=False)
            async with asyncio.timeout(100), asyncio.TaskGroup() as group:
                for one in (mirror, relay):
                    group.create_task(one.run())
                while not mirror.mirrored:
                    await asyncio.sleep(0.05)
                broker.kill()
                await postgres_bus.publish("ours", Envelope(type="Placed"))
                await told(f"{topic.name} is not mirrored until the brokers answer")
                await told("ours is not relayed for now")
                broker.start()
                await told(f"{topic.name} is mirrored again")
                await told("ours is relayed again after")
                topic.write(b"2")
                await topic.flush()
                while mirror.mirrored < 2:
                    await asyncio.sleep(0.05)
                mirror.stop()
                relay.stop()
    outages = [one.getMessage() for one in caplog.records if one.name.startswith("kingdom.bus") and one.levelno >= 30]
    assert len([one for one in outages if "mirrored" in one]) == 2, outages
    assert len([one for one in outages if "relayed" in one]) == 2, outages
