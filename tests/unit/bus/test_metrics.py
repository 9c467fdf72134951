"""Metrics: what Prometheus sees of buses and workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kingdom.bus import Depth, Envelope, EventBus, InvalidOption, Reject, Retry, TransportUnavailable, Worker, connect
from kingdom.bus.metrics import BUCKETS, Metrics


@pytest.fixture
async def bus() -> AsyncIterator[EventBus]:
    async with connect("memory:") as bus:
        await bus.setup()
        yield bus


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample rendered, by its name and the values of its labels, the stream first."""
    families = text_string_to_metric_families(metrics.render().decode())
    labels = ("stream", "eventType", "result", "le")
    return {
        (item.name, *(item.labels[label] for label in labels if label in item.labels)): item.value
        for family in families
        for item in family.samples
    }


async def test_a_worker_is_counted_by_result_and_by_type(bus: EventBus) -> None:
    worker = Worker(bus, "orders", signals=False)
    left = 4

    @worker.on("Order", "Refund")
    async def handle(event: Envelope) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            worker.stop()
        if event.payload.get("bad"):
            raise Reject("BAD")
        if event.payload.get("later"):
            raise Retry(after=3600)

    await bus.publish("orders", Envelope(type="Order"), Envelope(type="Order"))
    await bus.publish(
        "orders", Envelope(type="Refund", payload={"bad": True}), Envelope(type="Refund", payload={"later": True})
    )
    await worker.run()
    metrics = Metrics()
    metrics.watch(worker)
    await metrics.sample()
    seen = samples(metrics)
    total = "kingdom_outbox_processed_total"
    assert (seen[total, "orders", "done"], seen[total, "orders", "dead"]) == (2, 1)
    assert (seen[total, "orders", "retry"], seen[total, "orders", "released"]) == (1, 0)
    assert seen["kingdom_outbox_lease_lost_total", "orders"] == 0
    assert seen["kingdom_outbox_handler_duration_seconds_count", "orders", "Order"] == 2
    assert seen["kingdom_outbox_handler_duration_seconds_bucket", "orders", "Refund", "+Inf"] == 2
    assert seen["kingdom_outbox_handler_duration_seconds_sum", "orders", "Refund"] > 0
    assert (seen["kingdom_outbox_pending", "orders"], seen["kingdom_outbox_dead", "orders"]) == (1, 1)
    assert seen["kingdom_outbox_processing", "orders"] == 0


def test_histogram_buckets_are_cumulative_and_workers_of_a_stream_add_up() -> None:
    bus = connect("memory:")
    workers = [Worker(bus, "orders", name=name) for name in ("one", "two")]
    for worker, seconds in zip(workers, (0.004, 0.2), strict=True):
        worker.stats.handled("Order", "done", seconds)
        worker.stats.lease_lost(1)
    workers[0].stats.handled("Order", "done", BUCKETS[-1] * 2)  # longer than the last limit
    metrics = Metrics("shop")
    metrics.watch(*workers, workers[0])
    seen = samples(metrics)
    buckets = [seen["shop_outbox_handler_duration_seconds_bucket", "orders", "Order", str(le)] for le in BUCKETS]
    assert buckets == [0 if le < 0.004 else 1 if le < 0.2 else 2 for le in BUCKETS]
    assert seen["shop_outbox_handler_duration_seconds_count", "orders", "Order"] == 3
    assert seen["shop_outbox_processed_total", "orders", "done"] == 3
    assert seen["shop_outbox_lease_lost_total", "orders"] == 2


async def test_depths_come_from_the_store_and_only_when_sampled(bus: EventBus) -> None:
    await bus.publish("orders", Envelope(type="Order"), Envelope(type="Order"))
    held = await bus.claim("orders", worker="w")
    metrics = Metrics()
    metrics.watch(bus)
    assert ("kingdom_outbox_pending", "orders") not in samples(metrics)
    await metrics.sample()
    await bus.settle(dead=held)
    seen = samples(metrics)
    assert (seen["kingdom_outbox_pending", "orders"], seen["kingdom_outbox_processing", "orders"]) == (1, 1)
    assert seen["kingdom_outbox_oldest_pending_seconds", "orders"] >= 0
    await metrics.sample()
    assert samples(metrics)["kingdom_outbox_dead", "orders"] == 1


async def test_one_store_watched_through_two_connections_is_counted_once_and_two_stores_add_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buses = [EventBus(connect("memory:").transport, url) for url in ("memory:a", "memory:a", "memory:b")]
    for bus, pending in zip(buses, (5, 5, 2), strict=True):

        async def depth(pending: int = pending) -> dict[str, Depth]:
            return {"orders": Depth(pending, 0, 1, float(pending))}

        monkeypatch.setattr(bus, "depth", depth)
    metrics = Metrics()
    metrics.watch(*buses)
    await metrics.sample()
    seen = samples(metrics)
    assert (seen["kingdom_outbox_pending", "orders"], seen["kingdom_outbox_dead", "orders"]) == (7, 2)
    assert seen["kingdom_outbox_oldest_pending_seconds", "orders"] == 5


async def test_a_type_that_no_watched_worker_of_the_stream_handles_is_shown(bus: EventBus) -> None:
    await bus.publish("orders", Envelope(type="Order"), Envelope(type="Refund"), Envelope(type="Refund"))
    await bus.publish("elsewhere", Envelope(type="Whatever"))
    metrics = Metrics()
    first, second = Worker(bus, "orders"), Worker(bus, "orders")
    first.on("Order")(print)
    second.on("Another")(print)
    metrics.watch(first, second)
    await metrics.sample()
    unhandled = {key: value for key, value in samples(metrics).items() if key[0] == "kingdom_outbox_unhandled"}
    assert unhandled == {("kingdom_outbox_unhandled", "orders", "Refund"): 2}

    second.on("*")(print)
    await metrics.sample()
    assert not [key for key in samples(metrics) if key[0] == "kingdom_outbox_unhandled"]


async def test_a_store_that_is_away_has_no_gauges_rather_than_frozen_ones(
    bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.publish("orders", Envelope(type="Order"))
    metrics = Metrics()
    metrics.watch(bus)
    await metrics.sample()
    assert ("kingdom_outbox_pending", "orders") in samples(metrics)

    async def away() -> dict[str, Depth]:
        raise TransportUnavailable("the store is away")

    monkeypatch.setattr(bus, "depth", away)
    with pytest.raises(TransportUnavailable):
        await metrics.sample()
    assert ("kingdom_outbox_pending", "orders") not in samples(metrics)


async def test_the_loop_survives_an_outage_and_says_so_once(
    bus: EventBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0
    back = asyncio.Event()

    async def depth() -> dict[str, Depth]:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise TransportUnavailable("the store is away")
        if tries == 5:
            back.set()
        return {"orders": Depth(pending=1)}

    monkeypatch.setattr(bus, "depth", depth)
    metrics = Metrics()
    metrics.watch(bus)
    running = asyncio.create_task(metrics.run(every=0.001))
    async with asyncio.timeout(30):
        await back.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert samples(metrics)["kingdom_outbox_pending", "orders"] == 1


def test_it_registers_like_any_collector() -> None:
    registry = CollectorRegistry(auto_describe=True)
    metrics = Metrics("shop")
    worker = Worker(connect("memory:"), "orders")
    worker.stats.released(2)
    metrics.watch(worker)
    metrics.register(registry)
    labels = {"stream": "orders", "result": "released"}
    assert registry.get_sample_value("shop_outbox_processed_total", labels) == 2
    with pytest.raises(ValueError, match="Duplicated"):
        Metrics("shop").register(registry)


@pytest.mark.parametrize("prefix", ["", "my-shop", "9lives", "a b"])
def test_a_prefix_prometheus_would_refuse_is_refused_at_once(prefix: str) -> None:
    with pytest.raises(InvalidOption, match="prefix"):
        Metrics(prefix)
