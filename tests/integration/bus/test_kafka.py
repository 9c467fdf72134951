"""The bus on a real Kafka broker: what its topics hold, outages, foreign records, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kingdom.bus import Envelope, EventBus, TransactionMismatch, TransportUnavailable, connect
from kingdom.bus.errors import SchemaTooNew
from kingdom.bus.transports.kafka import KafkaTransport
from kingdom.bus.transports.kafka._clients import ProducedRecord
from kingdom.bus.transports.kafka._topics import marker_topic
from kingdom.cli import app
from tests.support.kafka import KafkaBroker

pytestmark = pytest.mark.kafka


@pytest.fixture
async def bus(kafka_url: str) -> AsyncIterator[EventBus]:
    async with connect(kafka_url) as bus:
        await bus.setup()
        yield bus


def clients_of(bus: EventBus) -> Any:
    assert isinstance(bus.transport, KafkaTransport)
    return bus.transport._clients


def topic_of(bus: EventBus, stream: str) -> str:
    return bus.url.partition("prefix=")[2] + stream


async def write(bus: EventBus, stream: str, value: bytes, key: bytes | None = None, **headers: str) -> None:
    """Write a record as another program would."""
    given = [(name, text.encode()) for name, text in headers.items()]
    await clients_of(bus).produce(topic_of(bus, stream), [ProducedRecord(key, value, given)], None)


async def test_a_record_is_the_json_form_with_the_headers_of_a_cloud_event(bus: EventBus) -> None:
    envelope = Envelope(type="Placed", aggregate_type="Order", aggregate_id="7", payload={"total": 5}, priority="high")
    await bus.publish("orders", envelope)
    [message] = await clients_of(bus).read_range(topic_of(bus, "orders"), 0, 10, 10)
    assert json.loads(message.value()) == envelope.to_dict()
    assert message.key() == b"7"
    headers = dict(message.headers())
    assert headers["ce_specversion"] == b"1.0"
    assert (headers["ce_id"], headers["ce_type"]) == (envelope.event_id.encode(), b"Placed")
    assert (headers["ce_source"], headers["content-type"]) == (b"/kingdom/orders", b"application/json")
    assert (headers["ce_aggregatetype"], headers["ce_aggregateid"]) == (b"Order", b"7")
    assert headers["ce_priority"] == b"high"


async def test_the_brokers_set_the_time(bus: EventBus) -> None:
    await bus.publish("orders", Envelope(type="Placed"))
    configs = await clients_of(bus).describe([topic_of(bus, "orders"), topic_of(bus, "orders") + "-ledger"])
    assert {config["message.timestamp.type"] for config in configs.values()} == {"LogAppendTime"}


async def test_a_new_bus_comes_to_the_same_state(bus: EventBus, kafka_url: str) -> None:
    await bus.declare("orders", ordered=True)
    await bus.publish("orders", [Envelope(type="Placed", aggregate_id=str(number % 3)) for number in range(30)])
    for _ in range(5):
        done, again, *rest = await bus.claim("orders", worker="w", limit=3)
        assert await bus.settle(done=[done], retry=[(again, 0, "AGAIN", "because")], dead=rest) == []
    held = await bus.claim("orders", worker="w", limit=2)
    async with connect(kafka_url) as other:
        assert (await other.depth())["orders"][:3] == (await bus.depth())["orders"][:3]
        assert [item.event_id for item in await other.recall("orders", worker="w")] == [item.event_id for item in held]
        letters = await other.dead("orders")
        assert [letter.event_id for letter in letters] == [letter.event_id for letter in await bus.dead("orders")]


async def test_an_event_of_another_program_is_delivered(bus: EventBus) -> None:
    await bus.declare("orders")
    whole = Envelope(type="Placed", payload={"total": 1})
    await write(bus, "orders", whole.to_json().encode(), key=b"7")
    await write(bus, "orders", b'{"total": 2}', ce_specversion="1.0", ce_id="theirs", ce_type="Paid")
    first, second = await bus.claim("orders", worker="w", limit=5)
    assert (first.event_id, first.envelope.aggregate_id, first.envelope.payload) == (whole.event_id, "7", {"total": 1})
    assert (second.event_id, second.envelope.type, second.envelope.payload) == ("theirs", "Paid", {"total": 2})


async def test_a_record_that_cannot_be_read_is_a_dead_letter_and_blocks_nothing(bus: EventBus) -> None:
    await bus.declare("orders", ordered=True)
    await write(bus, "orders", b"\xff no JSON")
    good = Envelope(type="Placed")
    await bus.publish("orders", good)
    assert await bus.claim("orders", worker="w", limit=5) == []
    assert [item.event_id for item in await bus.claim("orders", worker="w", limit=5)] == [good.event_id]
    [letter] = await bus.dead("orders")
    assert (letter.event_id, letter.error_code) == ("unreadable-0", "INVALID_ENVELOPE")


async def test_half_of_a_batch_does_not_count(bus: EventBus) -> None:
    """Its publisher died before the rest arrived."""
    await bus.declare("orders")
    half = Envelope(type="Placed")
    await write(bus, "orders", half.to_json().encode(), ce_id=half.event_id, ce_type="Placed", ce_batch="b1 2")
    assert await bus.claim("orders", worker="w") == []
    assert (await bus.depth())["orders"].pending == 0
    rest = Envelope(type="Placed")
    await write(bus, "orders", rest.to_json().encode(), ce_id=rest.event_id, ce_type="Placed", ce_batch="b1 2")
    claimed = await bus.claim("orders", worker="w", limit=5)
    assert [item.event_id for item in claimed] == [half.event_id, rest.event_id]


async def test_streams_whose_names_are_no_topic_names_are_kept_apart(bus: EventBus) -> None:
    names = ["a.b", "a_b", "a-b", "a:b", "a@b", "a+b", "a", "a-ledger", "a--b", "a-"]
    for name in names:
        await bus.publish(name, Envelope(type="Placed"))
    assert {name: depth.pending for name, depth in (await bus.depth()).items()} == dict.fromkeys(names, 1)


async def test_an_operation_of_a_newer_version_stops_the_process(bus: EventBus) -> None:
    await bus.declare("orders")
    await write(bus, "orders-ledger", b'{"v": 2, "op": "claim", "data": 0}')
    with pytest.raises(SchemaTooNew, match="newer version of kingdom: upgrade this process"):
        await bus.claim("orders", worker="w")


async def test_topics_of_a_newer_version_are_refused(bus: EventBus, kafka_url: str) -> None:
    prefix = kafka_url.partition("prefix=")[2]
    await clients_of(bus).create_topics({marker_topic(prefix, 2): {}})
    while marker_topic(prefix, 2) not in await clients_of(bus).topics():
        await asyncio.sleep(0.01)  # the broker hears of it from the controller
    with pytest.raises(SchemaTooNew, match="upgrade this process"):
        async with connect(kafka_url):
            pass


async def test_a_transaction_is_refused_with_the_way_to_do_it(bus: EventBus) -> None:
    with pytest.raises(TransactionMismatch, match="publish with tx= to a bus in that database"):
        await bus.publish("orders", Envelope(type="Placed"), tx=object())


async def test_many_set_up_and_use_a_new_bus_at_once(kafka_url: str) -> None:
    async def one(number: int) -> list[str]:
        async with connect(kafka_url) as bus:
            applied = await bus.setup()
            await bus.publish("orders", Envelope(type="Placed", event_id=f"event-{number % 2}"))
            return applied

    applied = await asyncio.gather(*(one(number) for number in range(6)))
    assert [name for names in applied for name in names] == ["001_topics"]
    async with connect(kafka_url) as bus:
        assert (await bus.depth())["orders"].pending == 2


async def test_no_broker_is_said_with_its_address_and_what_to_do() -> None:
    with pytest.raises(TransportUnavailable, match=r"127\.0\.0\.1:1 within 1 s.*check that the brokers run"):
        async with connect("kafka://127.0.0.1:1", connect_timeout=1):
            pass


async def test_the_doctor_looks_at_the_topics(bus: EventBus) -> None:
    await bus.declare("orders")
    checks = {check.name: check for check in await bus.doctor()}
    assert [
        checks[name].level for name in ("brokers", "version", "access rights", "topics", "clock", "retention", "lag")
    ] == ["ok"] * 7
    assert checks["replicas"].level == "warning"
    assert "acks=all is not fsync" in checks["replicas"].message


async def test_the_doctor_finds_a_bus_that_was_not_set_up(kafka_url: str) -> None:
    async with connect(kafka_url) as bus:
        assert [check.level for check in await bus.doctor()] == ["ok", "ok", "error"]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path) as broker:
        yield broker


@pytest.mark.walk
async def test_a_bus_goes_on_after_its_broker_was_killed(own_broker: KafkaBroker) -> None:
    async with connect(own_broker.url("t"), connect_timeout=60) as bus:
        await bus.setup()
        before = Envelope(type="Placed")
        await bus.publish("orders", before)
        [held] = await bus.claim("orders", worker="w", lease=300)
        own_broker.kill()
        during = Envelope(type="Placed")
        publishing = asyncio.create_task(bus.publish("orders", during))
        settling = asyncio.create_task(bus.settle(done=[held]))
        await asyncio.to_thread(own_broker.start)
        assert await publishing == [during.event_id]
        assert await settling == []
        assert [item.event_id for item in await bus.claim("orders", worker="w", limit=5)] == [during.event_id]
        record = await bus.find(before.event_id)
        assert record is not None
        assert record.status == "DONE"


async def test_topics_are_created_once_the_brokers_have_started(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was just started refuses topics for a moment; more replicas than brokers it refuses for good."""
    clients, refusals = clients_of(bus), ["All brokers are currently fenced"] * 2
    create = clients._admin.create_topics

    def starting(topics: Any, **options: Any) -> Any:
        if not refusals:
            return create(topics, **options)
        refused: Future[None] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, refusals.pop())))
        return {topics[0].topic: refused}

    monkeypatch.setattr(clients, "_admin", SimpleNamespace(create_topics=starting))
    name = topic_of(bus, "late")
    assert await clients.create_topics({name: {}}) == [name]
    refusals.append("only 1 broker is registered")
    with pytest.raises(TransportUnavailable, match="only 1 broker is registered"):
        await clients.create_topics({topic_of(bus, "later"): {}})


async def test_the_first_record_in_a_topic_goes_alone(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that does not know the producer takes a later request for the first, and drops the first."""
    clients, sizes = clients_of(bus), list[int]()
    produce = clients._produce

    async def counting(producer: Any, topic: str, records: Any, *rest: Any) -> None:
        sizes.append(len(records))
        await produce(producer, topic, records, *rest)

    monkeypatch.setattr(clients, "_produce", counting)
    several = [[Envelope(type="Placed") for _ in range(5)] for _ in range(2)]
    await asyncio.gather(*(bus.publish("orders", batch) for batch in several))
    assert sorted(sizes) == [1, 4, 5]
    await bus.publish("orders", [Envelope(type="Placed") for _ in range(5)])
    assert sizes[-1] == 5
    assert (await bus.depth())["orders"].pending == 15


def test_the_commands_of_the_bus_work_on_kafka(kafka_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*command: str) -> tuple[int, str]:
        code = app.run(["bus", *command, "--url", kafka_url])
        return code, capsys.readouterr().out

    assert run("migrate") == (0, "applied 001_topics\n")
    asyncio.run(publish_and_bury(kafka_url))
    code, told = run("depth", "--json")
    assert (code, json.loads(told)["streams"][0]["dead"]) == (0, 1)
    assert "REJECTED" in run("dead", "orders")[1]
    assert '"DEAD"' in run("show", "event-1", "--json")[1]
    assert run("requeue", "orders", "--all", "--yes")[0] == 0
    code, told = run("ls", "orders")
    assert (code, "event-1" in told) == (0, True)
    assert run("doctor")[0] == 0
    assert run("purge", "--older-than", "0s", "--yes")[0] == 0


async def publish_and_bury(url: str) -> None:
    async with connect(url) as bus:
        await bus.publish("orders", Envelope(type="Placed", event_id="event-1"))
        await bus.settle(dead=await bus.claim("orders", worker="w"))
