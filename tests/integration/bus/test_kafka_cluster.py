"""The bus on three brokers of which some are killed, and what the doctor says of clusters, versions and rights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kingdom.bus import Check, Envelope, EventBus, Worker, connect
from kingdom.bus.transports.kafka._doctor import _version
from tests.support.kafka import KafkaBroker, KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.walk, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


async def checks_of(bus: EventBus) -> dict[str, Check]:
    return {check.name: check for check in await bus.doctor()}


async def test_the_doctor_is_content_with_three_replicas_of_which_two_are_in_sync(cluster: KafkaCluster) -> None:
    async with connect(cluster.url("good"), connect_timeout=60) as bus:
        await bus.setup()
        await bus.publish("orders", Envelope(type="Placed", event_id="one"))
        found = await checks_of(bus)
        assert {check.level for check in found.values()} == {"ok"}
        assert found["brokers"].message.startswith("3 at ")
        assert found["lag"].message == "0 operations behind in 1 open shard(s)"


async def test_the_doctor_finds_topics_that_one_broker_alone_acknowledges(cluster: KafkaCluster) -> None:
    async with connect(cluster.url("poor") + "&replication=1", connect_timeout=60) as bus:
        await bus.setup()
        await bus.declare("orders")
        found = await checks_of(bus)
        assert (found["replicas"].level, found["replicas"].message[:22]) == ("error", "fewer than 3 replicas ")


@pytest.mark.parametrize("shards", [1, 4])
async def test_nothing_is_lost_or_doubled_while_each_broker_is_killed_in_turn(
    cluster: KafkaCluster, shards: int
) -> None:
    """The controller is among them. An event counts once publish has returned."""
    handled: Counter[str] = Counter()
    async with connect(f"{cluster.url(f'kill{shards}')}&shards={shards}", connect_timeout=120) as bus:
        await bus.setup()
        await bus.declare("orders", ordered=True)
        worker = Worker(bus, "orders", name="w", lease=300, signals=False)
        order: dict[str, list[int]] = {}

        @worker.on("Placed")
        async def handle(event: Envelope) -> None:
            handled[event.event_id] += 1
            order.setdefault(event.aggregate_id or "", []).append(event.payload["n"])

        working = asyncio.create_task(worker.run())
        published: list[str] = []
        for victim in cluster.nodes:
            publishing = asyncio.create_task(publish_some(bus, published))
            await asyncio.to_thread(victim.kill)
            await publishing
            await publish_some(bus, published)
            await asyncio.to_thread(victim.start)
        async with asyncio.timeout(120):
            while len(handled) < len(published):
                await asyncio.sleep(0.05)
        worker.stop()
        await working
        assert (await bus.depth())["orders"][:3] == (0, 0, 0)
    assert handled == Counter(dict.fromkeys(published, 1))
    assert all(numbers == sorted(numbers) for numbers in order.values())


async def publish_some(bus: EventBus, published: list[str]) -> None:
    for number in range(20):
        event = Envelope(type="Placed", aggregate_id=str(number % 3), payload={"n": len(published)})
        await bus.publish("orders", event)
        published.append(event.event_id)


# ── versions and rights ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_version_of_the_brokers_is_that_of_a_setting_until_4() -> None:
    assert _version({"inter.broker.protocol.version": "3.8-IV0"}).level == "error"
    assert _version({"inter.broker.protocol.version": "3.9-IV0"}) == Check("version", "ok", "Kafka 3.9")
    assert _version({}).message == "Kafka 4.0 or newer"
    assert _version(None).level == "warning"


async def test_the_doctor_says_which_rights_are_missing(tmp_path: Path) -> None:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    with KafkaBroker(tmp_path, authorizer + "allow.everyone.if.no.acl.found=true\n") as broker:
        async with connect(broker.url("t"), connect_timeout=60) as bus:
            await bus.setup()
            await bus.declare("orders")
            assert (await checks_of(bus))["access rights"].level == "ok"
            await allow(
                broker,
                ResourceType.BROKER,
                "kafka-cluster",
                ["DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "CLUSTER_ACTION"],
            )
            found = await checks_of(bus)
            assert (found["access rights"].level, found["access rights"].message[:21]) == (
                "warning",
                "CREATE is not allowed",
            )
            await allow(broker, ResourceType.TOPIC, "t.orders", ["READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"])
            found = await checks_of(bus)
            assert (found["access rights"].level, found["access rights"].message[:21]) == (
                "warning",
                "DELETE is not allowed",
            )
            await allow(broker, ResourceType.TOPIC, "t.orders-ledger", ["READ", "DESCRIBE"])
            found = await checks_of(bus)
            assert found["access rights"] == Check(
                "access rights", "error", "WRITE is not allowed on t.orders-ledger", "allow WRITE on these topics"
            )


async def test_a_process_that_may_not_use_groups_takes_part_in_all_shards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    with KafkaBroker(tmp_path, authorizer + "allow.everyone.if.no.acl.found=true\n") as broker:
        await allow(broker, ResourceType.GROUP, "*", ["DESCRIBE"])
        async with connect(f"{broker.url('t')}&shards=4", connect_timeout=60) as bus:
            await bus.setup()
            worker = Worker(bus, "orders", name="w", signals=False)
            handled: set[str] = set()

            @worker.on("Placed")
            async def handle(event: Envelope) -> None:
                handled.add(event.event_id)
                if len(handled) == 40:
                    worker.stop()

            published: list[str] = []
            await publish_some(bus, published)
            await publish_some(bus, published)
            async with asyncio.timeout(60):
                await worker.run()
            assert handled == set(published)
            warned = [record.getMessage() for record in caplog.records if "takes part in all shards" in record.message]
            assert len(warned) == 1
            assert "t.orders" in warned[0]


async def allow(broker: KafkaBroker, kind: Any, name: str, operations: list[str]) -> None:
    """Allow these operations, and so no others."""
    admin = AdminClient({"bootstrap.servers": broker.servers})
    wanted = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for future in admin.create_acls(wanted).values():
        await asyncio.wrap_future(future)
