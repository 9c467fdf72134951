"""The bus on Kafka beside the bare client and beside PostgreSQL, and the relay between the two."""

from __future__ import annotations

from functools import partial

from bench import ours
from bench.bare import kafka as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Table
from bench.peers import Peer
from bench.processes import kafka_drain_together

TITLE = "Kafka: publish, drain, latency, relay"
_BATCH = 1000
_ONE_BROKER = "One broker on this machine, one shard"


def _faststream(function: str, how: str, *arguments: object, **options: object) -> list[Contestant]:
    """FastStream with each of its clients."""
    measure = Peer("faststream", function)
    clients = {"FastStream, aiokafka": "kafka", "FastStream, confluent": "confluent"}
    return [Contestant(name, partial(measure, client, *arguments, **options), how) for name, client in clients.items()]


def publish(context: Context) -> list[Table]:
    """Many events for each call."""
    server, servers, count = context.postgres, context.kafka, context.pick(10_000, 50_000)
    outcomes = context.race(
        Contestant("bare producer", partial(bare.publish, servers, count, size=_BATCH), "idempotent, flushed"),
        Contestant("kingdom", partial(ours.kafka_publish, servers, count, size=_BATCH), "bus.publish"),
        Contestant("kingdom, postgresql", partial(ours.postgres_publish, server, count, size=_BATCH), "bus.publish"),
        *_faststream("publish", "publish_batch", servers, count, size=_BATCH),
    )
    return [
        Table(
            f"Publish in batches of {_BATCH:,}",
            "events/s",
            outcomes,
            bars={"kingdom": [Bar(">=", 0.6, of="bare producer")]},
            remarks=(_ONE_BROKER, "The bare producer makes no ids, envelopes or headers"),
        )
    ]


def drain(context: Context) -> list[Table]:
    """One Worker with a no-op."""
    server, servers, count = context.postgres, context.kafka, context.pick(10_000, 50_000)
    outcomes = context.race(
        Contestant("bare consumer", partial(bare.drain, servers, count), "consume(500) and commit, no leases"),
        Contestant("kingdom", partial(ours.kafka_drain, servers, count, batch=500), "Worker"),
        Contestant("kingdom, postgresql", partial(ours.postgres_drain, server, count, batch=500), "Worker"),
        *_faststream("drain", "batches of 500, committed after each; no leases, no retries", servers, count),
    )
    bars = [Bar(">=", 25_000), Bar(">=", 1.0, of="kingdom, postgresql")]
    return [Table("Drain with one Worker", "events/s", outcomes, bars={"kingdom": bars}, remarks=(_ONE_BROKER,))]


def shards(context: Context) -> list[Table]:
    """One process and two, with four shards."""
    servers, count = context.kafka, context.pick(10_000, 20_000)
    outcomes = context.race(
        Contestant("one process", partial(kafka_drain_together, servers, count, processes=1), "Worker"),
        Contestant("two processes", partial(kafka_drain_together, servers, count, processes=2), "a Worker each"),
    )
    bars = {"two processes": [Bar(">=", 1.5, of="one process")]}
    remark = "One broker on this machine, four shards, no-op handlers: with two cores the processes share them with it"
    return [Table("Drain four shards", "events/s", outcomes, bars=bars, remarks=(remark,))]


def latency(context: Context) -> list[Table]:
    """Events trickle in; how soon each is handled."""
    servers, count = context.kafka, context.pick(30, 120)
    outcomes = context.race(
        Contestant("bare", partial(bare.latency, servers, count), "produce, flush → poll in a thread"),
        Contestant("kingdom", partial(ours.kafka_latency, servers, count), "Worker"),
        *_faststream("latency", "committed after each event", servers, count),
    )
    titles = {
        "p50": ("Publish → handler start, p50", Bar("<=", 2.0, of="bare")),
        "p99": ("Publish → handler start, p99", Bar("<", 30.0)),
    }
    return [
        Table(title, "ms", outcomes, metric=metric, bars={"kingdom": [bar]}, higher_is_better=False)
        for metric, (title, bar) in titles.items()
    ]


def relay(context: Context) -> list[Table]:
    """From the outbox to the topic."""
    server, servers, count = context.postgres, context.kafka, context.pick(10_000, 50_000)
    outcomes = context.race(Contestant("kingdom", partial(ours.relay, server, servers, count), "Relay, 500 aggregates"))
    return [
        Table(
            "Relay an outbox in PostgreSQL to Kafka",
            "events/s",
            outcomes,
            bars={"kingdom": [Bar(">=", 15_000)]},
            remarks=("In order for each aggregate: read, sent and marked, 1,000 at a time; the index is made before",),
        )
    ]


PARTS = (publish, drain, shards, latency, relay)
