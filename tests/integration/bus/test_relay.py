"""The relay from an outbox in a real PostgreSQL to a real Kafka broker."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, EventRouter, InvalidOption, NotSetUp, Relay, connect
from kingdom.bus.transports.kafka import KafkaTransport
from kingdom.bus.transports.kafka._topics import topics_of
from kingdom.cli import app
from tests.support import relay_victim
from tests.support.forking import fate

pytestmark = pytest.mark.kafka


@pytest.fixture
async def outbox(postgres_bus: EventBus) -> EventBus:
    return postgres_bus


@pytest.fixture
async def kafka(kafka_url: str) -> AsyncIterator[EventBus]:
    async with connect(kafka_url) as bus:
        await bus.setup()
        yield bus


def clients_of(bus: EventBus) -> Any:
    assert isinstance(bus.transport, KafkaTransport)
    return bus.transport._clients


def topic_of(bus: EventBus, stream: str) -> str:
    return topics_of(clients_of(bus).settings.prefix, stream).data


async def messages_in(bus: EventBus, topic: str) -> list[Any]:
    clients = clients_of(bus)
    [end] = await clients.end_offsets([(topic, 0)])
    return list(await clients.read_range(topic, 0, end, end)) if end else []


async def ids_in(bus: EventBus, stream: str) -> list[str]:
    return [dict(message.headers())["ce_id"].decode() for message in await messages_in(bus, topic_of(bus, stream))]


def events(count: int, aggregates: int = 5, first: int = 0) -> list[Envelope]:
    """Events whose ids tell their aggregate and their place in it."""
    return [
        Envelope(type="Placed", aggregate_type="Order", aggregate_id=str(number % aggregates), event_id=f"e{number:05}")
        for number in range(first, first + count)
    ]


def assert_in_order(ids: list[str], aggregates: int = 5) -> None:
    """The first occurrences of the events of each aggregate are in publish order."""
    for aggregate in range(aggregates):
        own = [item for item in dict.fromkeys(ids) if int(item[1:]) % aggregates == aggregate]
        assert own == sorted(own)


async def relay_all(outbox: EventBus, kafka: EventBus, *streams: str, **options: Any) -> Relay:
    relay = Relay(outbox, kafka, streams or None, signals=False, **options)
    await relay.run(once=True)
    return relay


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.02)


async def connections(sql: Any) -> set[int]:
    """The processes of the server that serve a client."""
    rows = await sql.fetch("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
    return {row["pid"] for row in rows}


async def _none_but(sql: Any, known: set[int]) -> bool:
    """Whether the server has finished what a killed process had asked for."""
    return await connections(sql) <= known


async def end_leases(sql: Any) -> None:
    """Let the time of dead relays pass."""
    await sql.execute("UPDATE outbox_relay SET until = now() - interval '1 s' WHERE holder IS NOT NULL")
    await sql.execute("UPDATE outbox_relay_member SET until = now() - interval '1 s'")


# ── what is carried ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_event_arrives_as_if_it_had_been_published_on_kafka(outbox: EventBus, kafka: EventBus) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    envelope = Envelope(type="Placed", aggregate_type="Order", aggregate_id="7", payload={"total": 5}, priority="high")
    await outbox.publish("orders", envelope, Envelope(type="Due", not_before=later))
    relay = await relay_all(outbox, kafka, "orders")
    assert relay.relayed == {"orders": 2}
    message, due = await messages_in(kafka, topic_of(kafka, "orders"))
    if message.key() is None:  # they are in different shards
        message, due = due, message
    await kafka.publish("same", envelope)
    [same] = await messages_in(kafka, topic_of(kafka, "same"))
    assert json.loads(message.value()) == json.loads(same.value()) == envelope.to_dict()
    assert message.key() == same.key() == b"7"
    expected = {**dict(same.headers()), "ce_source": b"/kingdom/orders"}
    del expected["ce_batch"]  # each row of an outbox counts by itself
    assert dict(message.headers()) == expected
    assert dict(due.headers())["ce_notbefore"] == later.isoformat().encode()
    [claimed] = await kafka.claim("orders", worker="w", limit=5)
    assert (claimed.event_id, claimed.envelope.payload, claimed.envelope.priority) == (
        envelope.event_id, {"total": 5}, "high",
    )  # fmt: skip


async def test_what_was_relayed_is_done_and_can_be_purged(outbox: EventBus, kafka: EventBus) -> None:
    await outbox.publish("orders", events(30))
    await relay_all(outbox, kafka, "orders")
    found = await outbox.find("e00003")
    assert found is not None
    assert (found.status, found.attempts) == ("DONE", 1)
    assert (await outbox.depth())["orders"][:3] == (0, 0, 0)
    await asyncio.sleep(0.01)
    assert await outbox.purge(0.001) == 30


async def test_the_events_of_an_aggregate_are_in_publish_order(outbox: EventBus, kafka: EventBus) -> None:
    for first in range(0, 600, 50):
        await outbox.publish("orders", events(50, first=first))
    await relay_all(outbox, kafka, "orders", batch=64)
    ids = await ids_in(kafka, "orders")
    assert sorted(ids) == [f"e{number:05}" for number in range(600)]
    assert_in_order(ids)


async def test_an_event_whose_transaction_commits_late_is_not_passed_over(
    outbox: EventBus, kafka: EventBus, sql: Any
) -> None:
    """Its row has a lower number than others that were relayed before."""
    await relay_all(outbox, kafka, "orders")  # the index is there
    transaction = sql.transaction()
    await transaction.start()
    await outbox.publish("orders", Envelope(type="Placed", event_id="late"), tx=sql)
    await outbox.publish("orders", events(20))
    relay = Relay(outbox, kafka, ["orders"], signals=False, batch=16)
    running = asyncio.create_task(relay.run())
    await until(lambda: _is(lambda: relay.relayed.get("orders") == 20))
    await transaction.commit()
    await until(lambda: _is(lambda: relay.relayed["orders"] == 21))
    relay.stop()
    await running
    assert (await ids_in(kafka, "orders"))[-1] == "late"


async def _is(condition: Callable[[], bool]) -> bool:
    return condition()


async def test_a_relay_is_woken_and_need_not_poll(outbox: EventBus, kafka: EventBus, postgres_url: str) -> None:
    async with connect(postgres_url) as other:
        relay = Relay(other, kafka, ["orders"], signals=False, poll=3600, lease=3600)
        running = asyncio.create_task(relay.run())
        for number in range(3):
            await outbox.publish("orders", Envelope(type="Placed"))
            await until(lambda number=number: _is(lambda: relay.relayed.get("orders") == number + 1))  # type: ignore[misc]
        relay.stop()
        await running


async def test_without_names_all_streams_are_relayed_also_new_ones(outbox: EventBus, kafka: EventBus) -> None:
    await outbox.publish("a", Envelope(type="Placed"))
    relay = Relay(outbox, kafka, signals=False, poll=3600, lease=3600)
    running = asyncio.create_task(relay.run())
    await until(lambda: _is(lambda: relay.relayed == {"a": 1}))
    await outbox.publish("b", Envelope(type="Placed"))
    await until(lambda: _is(lambda: relay.relayed == {"a": 1, "b": 1}))
    relay.stop()
    await running


async def test_what_a_worker_holds_is_left_to_it(outbox: EventBus, kafka: EventBus) -> None:
    await outbox.publish("orders", events(10, aggregates=2))
    [held] = await outbox.claim("orders", worker="w")
    relay = await relay_all(outbox, kafka, "orders")
    assert relay.relayed == {"orders": 5}
    assert all(int(item[1:]) % 2 == 1 for item in await ids_in(kafka, "orders"))
    await outbox.release([held])
    await relay_all(outbox, kafka, "orders")
    ids = await ids_in(kafka, "orders")
    assert len(ids) == 10
    assert_in_order(ids, aggregates=2)


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.timeout(300)
async def test_a_relay_that_is_killed_at_any_step_loses_and_reorders_nothing(
    outbox: EventBus, kafka: EventBus, kafka_url: str, postgres_url: str, sql: Any, stride: int
) -> None:
    await kafka.declare("orders")
    step, published = 0, 0
    while True:
        await outbox.publish("orders", events(24, first=published))
        published += 24
        before = await connections(sql)
        code = await asyncio.to_thread(fate, relay_victim.run, postgres_url, kafka_url, "orders", step)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        await until(lambda before=before: _none_but(sql, before))  # type: ignore[misc]
        unmarked = (await outbox.depth())["orders"].pending
        written = len(await ids_in(kafka, "orders"))
        await end_leases(sql)
        await relay_all(outbox, kafka, "orders")
        after = await ids_in(kafka, "orders")
        assert len(after) == written + unmarked  # only what was not marked is sent again
        assert set(after) == {f"e{number:05}" for number in range(published)}
        assert_in_order(after)
        step += stride
    assert step > 0
    assert (await kafka.depth())["orders"].pending == published  # the stream has each once


async def test_a_relay_that_lost_its_shards_marks_nothing(
    outbox: EventBus, kafka: EventBus, postgres_url: str, sql: Any
) -> None:
    """It was asleep: another one took over, and what the first sends late is there already."""
    await outbox.publish("orders", events(20))
    asleep = Relay(outbox, kafka, ["orders"], signals=False)
    sender = await kafka.transport.relay_sender(None)  # type: ignore[attr-defined]
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Sleeping:
        async def send(self, rows: Any) -> Any:
            reached.set()
            await go_on.wait()
            return await sender.send(rows)

        async def close(self) -> None: ...

    async def sleeping_sender(router: object) -> Any:
        return Sleeping()

    asleep._target.relay_sender = sleeping_sender  # type: ignore[method-assign]
    running = asyncio.create_task(asleep.run())
    await reached.wait()
    await end_leases(sql)
    async with connect(postgres_url) as second:
        del asleep._target.relay_sender
        other = await relay_all(second, kafka, "orders")
        assert other.relayed == {"orders": 20}
        await second.publish("orders", events(10, first=20))
        asleep.stop()
        go_on.set()
        await running
        assert asleep.relayed == {"orders": 0}
        await relay_all(second, kafka, "orders")
    ids = await ids_in(kafka, "orders")
    assert len(ids) == 50
    assert_in_order(ids)
    assert (await kafka.depth())["orders"].pending == 30


async def test_relays_share_the_shards_and_take_over_from_one_that_stops(
    outbox: EventBus, kafka: EventBus, postgres_url: str, sql: Any
) -> None:
    async def held() -> dict[str, int]:
        rows = await sql.fetch("SELECT holder, count(*) AS n FROM outbox_relay WHERE holder IS NOT NULL GROUP BY 1")
        return {row["holder"]: row["n"] for row in rows}

    async def holds(*counts: int) -> bool:
        return sorted((await held()).values()) == sorted(counts)

    async with connect(postgres_url) as second:
        first = Relay(outbox, kafka, ["orders"], signals=False, name="first")
        runs = asyncio.create_task(first.run())
        await until(lambda: holds(16))
        other = Relay(second, kafka, ["orders"], signals=False, name="second", lease=3600)
        other_runs = asyncio.create_task(other.run())
        await until(lambda: holds(8, 8))
        await outbox.publish("orders", events(400, aggregates=40))
        await until(lambda: _is(lambda: first.relayed["orders"] + other.relayed["orders"] == 400))
        assert first.relayed["orders"] > 0
        assert other.relayed["orders"] > 0
        other.stop()
        await other_runs
        await until(lambda: holds(16))
        first.stop()
        await runs
        assert await held() == {}
    ids = await ids_in(kafka, "orders")
    assert len(ids) == 400
    assert_in_order(ids, aggregates=40)


async def test_what_a_relay_repeats_comes_to_the_same_shard(outbox: EventBus, kafka_url: str, sql: Any) -> None:
    """Also events without an aggregate, which a partitioner would send anywhere."""
    async with connect(f"{kafka_url}&shards=4") as kafka:
        await kafka.setup()
        alone = [Envelope(type="Happened", event_id=f"alone-{number}") for number in range(20)]
        await outbox.publish("orders", [*events(20), *alone])
        for _ in range(2):  # the relay was killed before it marked anything
            await sql.execute("UPDATE outbox_event SET status = 'PENDING', processed_at = NULL")
            await relay_all(outbox, kafka, "orders")
        assert (await kafka.depth())["orders"].pending == 40
        assert await kafka.publish("orders", alone) == []


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_record_that_is_refused_holds_back_its_aggregate_only(outbox: EventBus, kafka: EventBus) -> None:
    """The topic takes smaller records than the outbox. With "park" what follows the dead one waits."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    await outbox.declare("orders", ordered=True, dead_head="park")
    await kafka.declare("orders")
    entry = ConfigEntry("max.message.bytes", "3000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic_of(kafka, "orders"), incremental_configs=[entry])
    for future in clients_of(kafka)._admin.incremental_alter_configs([resource]).values():
        await asyncio.wrap_future(future)
    large = random.Random(1).randbytes(10_000).hex()  # compressed it is still too large
    for event in events(40):
        big = event.event_id == "e00012"
        await outbox.publish("orders", Envelope(**{**_fields(event), "payload": {"text": large if big else ""}}))
    await relay_all(outbox, kafka, "orders")
    ids = await ids_in(kafka, "orders")
    assert {item for item in ids if int(item[1:]) % 5 == 2} == {"e00002", "e00007"}
    assert len(set(ids)) == 34
    assert_in_order(ids)
    [letter] = await outbox.dead("orders")
    assert (letter.event_id, letter.error_code) == ("e00012", "InvalidEnvelope")
    assert "max.message.bytes" in (letter.error_message or "")
    entry = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic_of(kafka, "orders"), incremental_configs=[entry])
    for future in clients_of(kafka)._admin.incremental_alter_configs([resource]).values():
        await asyncio.wrap_future(future)
    await outbox.requeue("orders", ["e00012"])
    await relay_all(outbox, kafka, "orders")
    ids = await ids_in(kafka, "orders")
    assert len(set(ids)) == 40
    assert_in_order(ids)


def _fields(event: Envelope) -> dict[str, Any]:
    return {
        "type": event.type,
        "event_id": event.event_id,
        "aggregate_type": event.aggregate_type,
        "aggregate_id": event.aggregate_id,
    }


async def test_what_cannot_be_relayed_is_said(outbox: EventBus, kafka: EventBus, postgres_server: str) -> None:
    with pytest.raises(InvalidOption, match="reads from postgresql://"):
        Relay(kafka, kafka)
    with pytest.raises(InvalidOption, match="writes to kafka://"):
        Relay(outbox, outbox)
    with pytest.raises(InvalidOption, match="batch=0"):
        Relay(outbox, kafka, batch=0)
    async with connect(postgres_server + "&schema=nowhere") as empty:
        with pytest.raises(NotSetUp, match="kingdom bus migrate"):
            await relay_all(empty, kafka, "orders")


# ── as Debezium ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_records_are_those_that_debezium_documents(outbox: EventBus, kafka: EventBus) -> None:
    """The example of "Outbox Event Router" in its documentation, with the payload in our envelope."""
    order = Envelope(
        type="OrderCreated",
        event_id="406c07f3-26f0-4eea-a50c-109940064b8f",
        aggregate_type="order",
        aggregate_id="1",
        payload={"id": 1, "lineItems": [{"id": 1, "item": "Debezium in Action", "totalPrice": 39.98}]},
    )
    await outbox.publish("orders", order)
    await relay_all(outbox, kafka, "orders", router=EventRouter())
    [message] = await messages_in(kafka, "outbox.event.order")
    assert message.key() == b'"1"'
    assert message.headers() == [("id", b"406c07f3-26f0-4eea-a50c-109940064b8f")]
    text = json.loads(message.value())  # a string with the JSON of the column, escaped
    assert json.loads(text) == order.to_dict()


@pytest.mark.parametrize("call", ["prepare", "streams", "share", "read"])
async def test_a_relay_that_waits_for_the_database_stops_when_it_is_told(
    outbox: EventBus, kafka: EventBus, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def wait(*_: Any, **__: Any) -> None:
        asked.set()
        await never.wait()

    await outbox.publish("orders", events(5))
    relay = Relay(outbox, kafka, signals=False)
    monkeypatch.setattr(relay._outbox, call, wait)
    monkeypatch.setattr(relay._outbox, "leave", wait)
    async with asyncio.timeout(60):
        running = asyncio.create_task(relay.run())
        await asked.wait()
        relay.stop()
        await running


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_batch_under_way_is_finished_or_left_to_the_next_relay(
    outbox: EventBus, kafka: EventBus, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    await outbox.publish("orders", events(20, aggregates=1))  # one batch
    relay = Relay(outbox, kafka, ["orders"], signals=False)
    sender = await kafka.transport.relay_sender(None)  # type: ignore[attr-defined]
    sending, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        async def send(self, rows: Any) -> Any:
            sending.set()
            await go_on.wait()
            return await sender.send(rows)

        async def close(self) -> None: ...

    async def slow(router: object) -> Any:
        return Slow()

    monkeypatch.setattr(kafka.transport, "relay_sender", slow)
    monkeypatch.setattr("kingdom.bus.relay._SENDING_SECONDS", 60.0 if arrives else 0.1)
    async with asyncio.timeout(60):
        running = asyncio.create_task(relay.run())
        await sending.wait()
        relay.stop()
        if arrives:
            await asyncio.sleep(0)  # it has noticed
            go_on.set()
        await running
    monkeypatch.undo()
    assert relay.relayed["orders"] == (20 if arrives else 0)
    await relay_all(outbox, kafka, "orders")
    assert len(await ids_in(kafka, "orders")) == 20


async def test_the_command_relays_and_says_how_many(
    outbox: EventBus, kafka: EventBus, postgres_url: str, kafka_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await outbox.publish("orders", events(3))
    arguments = ["bus", "relay", "--from", postgres_url, "--to", kafka_url, "--streams", "orders", "--once"]
    assert await asyncio.to_thread(app.run, arguments) == 0
    assert capsys.readouterr().out == "3 events of orders relayed\n"
    assert len(await ids_in(kafka, "orders")) == 3
    assert await asyncio.to_thread(app.run, arguments) == 0  # a stream whose events are finished is there
    await outbox.declare("refunds")
    capsys.readouterr()
    assert await asyncio.to_thread(app.run, [*arguments[:-2], "order,refunds", "--once"]) == 1
    assert "there is no stream 'order' in postgresql://" in (said := capsys.readouterr().err)
    assert "it has refunds" in said
    assert await asyncio.to_thread(app.run, ["bus", "relay", "--from", kafka_url, "--to", kafka_url, "--once"]) == 1
    assert "a relay reads from postgresql://" in capsys.readouterr().err
