"""Publishing to PostgreSQL: in batches, and one by one."""

from __future__ import annotations

from functools import partial

from bench import ours
from bench.bare import postgres as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Table
from bench.peers import Peer

TITLE = "publish on PostgreSQL"
BATCH = 1000


def batches(context: Context) -> list[Table]:
    """Many events for each call."""
    server = context.postgres
    many, few = context.pick((10_000, 1_000), (50_000, 4_000))
    outcomes = context.race(
        Contestant("bare unnest", partial(bare.publish_batches, server, many, BATCH), "unnest, asyncpg"),
        Contestant("kingdom", partial(ours.postgres_publish, server, many, size=BATCH), "bus.publish"),
        Contestant("PGQueuer", partial(Peer("pgqueuer", "publish_batches"), server, many, BATCH), "enqueue([…])"),
        Contestant(
            "Procrastinate",
            partial(Peer("procrastinate", "publish_batches"), server, few, BATCH),
            "batch_defer_async",
        ),
    )
    return [
        Table(
            f"Publish in batches of {BATCH:,}",
            "events/s",
            outcomes,
            bars={"kingdom": [Bar(">=", 0.7, of="bare unnest")]},
            remarks=(
                "From the payload, a dictionary, to the commit: ids, envelopes and JSON are made within the clock",
            ),
        )
    ]


def singles(context: Context) -> list[Table]:
    """One event for each call."""
    server = context.postgres
    many, few = context.pick((1_000, 300), (5_000, 1_000))
    outcomes = context.race(
        Contestant("bare INSERT", partial(bare.publish_singles, server, many), "prepared, one commit each, asyncpg"),
        Contestant("kingdom", partial(ours.postgres_publish, server, many, size=1), "bus.publish"),
        Contestant("PGQueuer", partial(Peer("pgqueuer", "publish_singles"), server, many), "enqueue"),
        Contestant("Procrastinate", partial(Peer("procrastinate", "publish_singles"), server, few), "defer_async"),
    )
    return [
        Table(
            "Publish one by one, each durable before the next",
            "events/s",
            outcomes,
            bars={"kingdom": [Bar(">=", 0.8, of="bare INSERT")]},
            remarks=("One caller; the bare INSERT sends no notification",),
        )
    ]


PARTS = (batches, singles)
