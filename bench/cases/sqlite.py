"""SQLite: draining beside the bare loop, concurrent publishers, and the embedded queues."""

from __future__ import annotations

from functools import partial

from bench import ours
from bench.bare import sqlite as bare
from bench.bars import Bar
from bench.cases import embedded
from bench.context import Context
from bench.harness import Contestant, Table
from bench.peers import Peer

TITLE = "SQLite (WAL, synchronous=FULL)"
_FULL = "each commit survives a power cut (WAL, FULL)"


def drain(context: Context) -> list[Table]:
    """Beside the bare loop."""
    folder, count = context.directory("sqlite-drain"), context.pick(10_000, 50_000)
    outcomes = context.race(
        Contestant("bare loop", partial(bare.drain, folder, count), "claim 500 + done 500, sqlite3"),
        Contestant("kingdom", partial(ours.local_drain, "sqlite", folder, count, batch=500), "Worker(batch=500)"),
    )
    return [
        Table(
            f"Drain of {count:,} events",
            "events/s",
            outcomes,
            bars={"kingdom": [Bar(">=", 0.6, of="bare loop", otherwise=Bar(">=", 20_000))]},
        )
    ]


def publishers(context: Context) -> list[Table]:
    """Concurrent publishers share commits."""
    folder, few, many = context.directory("sqlite-publish"), *context.pick((1_000, 4_000), (4_000, 40_000))
    outcomes = context.race(
        Contestant("one publisher", partial(ours.local_publishers, "sqlite", folder, few, publishers=1)),
        Contestant("32 publishers", partial(ours.local_publishers, "sqlite", folder, many, publishers=32)),
        Contestant("bare, 1 for each commit", partial(bare.publish, folder, few, size=1), "sqlite3, no event loop"),
        Contestant("bare, 500 for each commit", partial(bare.publish, folder, many, size=500), "sqlite3"),
    )
    return [
        Table(
            "Publish one event for each call, every call durable on return",
            "events/s",
            outcomes,
            bars={"32 publishers": [Bar(">=", 5.0, of="one publisher")]},
            remarks=("The publishers are tasks of one process, on one bus",),
        )
    ]


def peers(context: Context) -> list[Table]:
    """Beside the embedded queues of others."""
    folder, count = context.directory("sqlite-peers"), context.pick(600, 3_000)
    outcomes = context.race(
        Contestant("kingdom", partial(ours.local_queue, "sqlite", folder, count, publishers=1), _FULL),
        Contestant("kingdom, publish_sync", partial(ours.local_queue_sync, "sqlite", folder, count), _FULL),
        Contestant(
            "kingdom, 32 publishers", partial(ours.local_queue, "sqlite", folder, count * 4, publishers=32), _FULL
        ),
        Contestant("persist-queue", partial(Peer("persistqueue", "sqlite"), folder, count), f"{_FULL}; SQLiteAckQueue"),
        Contestant("huey", partial(Peer("huey", "sqlite"), folder, count), f"{_FULL}; deleted before it runs"),
        Contestant(
            "litequeue",
            partial(Peer("litequeue", "sqlite"), folder, count),
            "NOT THE SAME: WAL, NORMAL: a power cut may lose the last commits",
        ),
    )
    return embedded.tables(
        outcomes,
        ours=("kingdom", "kingdom, publish_sync", "kingdom, 32 publishers"),
        same=("persist-queue", "huey"),
    )


PARTS = (drain, publishers, peers)
