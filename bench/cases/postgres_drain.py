"""Draining a filled table: the bare loop, Kingdom and the peers; and two processes of ours against one."""

from __future__ import annotations

from functools import partial

from bench import ours, together
from bench.bare import postgres as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Table
from bench.peers import Peer, river
from bench.transports import Place

TITLE = "drain on PostgreSQL"


def one_process(context: Context) -> list[Table]:
    """Everybody, one process each."""
    server = context.postgres
    many, some, few = context.pick((8_000, 6_000, 300), (40_000, 20_000, 1_500))
    pgqueuer, procrastinate = Peer("pgqueuer", "drain"), Peer("procrastinate", "drain")
    outcomes = context.race(
        Contestant("bare loop", partial(bare.drain, server, many), "claim 100 + settle 100, asyncpg, one connection"),
        Contestant("kingdom", partial(ours.postgres_drain, server, many, batch=100), "Worker(batch=100)"),
        Contestant(
            "kingdom, batch 500",
            partial(ours.postgres_drain, server, many, batch=500, concurrency=32),
            "Worker(batch=500, concurrency=32)",
        ),
        Contestant("PGQueuer-100", partial(pgqueuer, server, some, batch=100), "batch 100, durable, autovac applied"),
        Contestant(
            "PGQueuer-1000",
            partial(pgqueuer, server, some, batch=1000),
            "batch 1000, durable, autovac applied",
        ),
        Contestant(
            "Procrastinate",
            partial(procrastinate, server, few, concurrency=30),
            "concurrency 30, delete_jobs=successful, no LISTEN",
        ),
        Contestant("Oban", partial(Peer("oban", "drain"), server, some, limit=1000), "limit 1000, uvloop, jobs kept"),
        Contestant(
            "FastStream outbox",
            partial(Peer("faststream_outbox", "drain"), server, some, workers=10),
            "10 workers, fetches 1000, deletes 100 at a time",
        ),
        Contestant(
            "River",
            partial(river.drain, server, some),
            "Go, all cores in one process; as its own benchmark: MaxWorkers 2000, FetchCooldown 2 ms",
        ),
    )
    bars = [
        Bar(">=", 0.75, of="bare loop"),
        Bar(">=", 1.5, of=("PGQueuer-100", "PGQueuer-1000")),
        Bar(">=", 20, of="Procrastinate"),
    ]
    return [
        Table(
            "Drain, 300-byte payloads, no-op async handlers, one process",
            "events/s",
            outcomes,
            bars={"kingdom": bars, "kingdom, batch 500": bars},
            remarks=(
                f"{many:,} events (Procrastinate {few:,}, the other peers {some:,}), until the last verdict is written",
            ),
        )
    ]


def two_processes(context: Context) -> list[Table]:
    """Two workers of ours on one stream."""
    place, many = Place.of(context, "postgresql", "drain"), context.pick(10_000, 60_000)
    outcomes = context.race(
        Contestant("one process", partial(together.drain, place, many, 1), "Worker(batch=100)"),
        Contestant("two processes", partial(together.drain, place, many, 2), "Worker(batch=100) in each"),
    )
    return [
        Table(
            "Drain, two kingdom processes on one stream",
            "events/s",
            outcomes,
            bars={"two processes": [Bar(">", 1.0, of="one process")]},
            remarks=(f"{many:,} events; from the common start to the end of the last process",),
        )
    ]


PARTS = (one_process, two_processes)
