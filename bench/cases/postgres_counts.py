"""What an event costs the server, counted rather than timed: statements and bytes of WAL."""

from __future__ import annotations

import asyncio
from functools import partial

from bench import ours, pg
from bench.bare import postgres as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Table
from bench.peers import Peer, river

TITLE = "statements and WAL for each event on PostgreSQL"


def count(context: Context) -> list[Table]:
    count = context.pick(2_000, 10_000)
    few = context.pick(300, 1_000)
    database = asyncio.run(pg.create_database(context.postgres, log_statements=True))
    server, watch = pg.in_database(context.postgres, database), pg.ServerCounts(context.postgres)
    outcomes = context.race(
        Contestant("bare loop", partial(bare.drain, server, count, watch=watch), "claim 100 + settle 100"),
        Contestant("kingdom", partial(ours.postgres_drain, server, count, batch=100, watch=watch), "Worker(batch=100)"),
        Contestant("PGQueuer", partial(Peer("pgqueuer", "drain"), server, count, batch=100, watch=watch), "batch 100"),
        Contestant(
            "Procrastinate",
            partial(Peer("procrastinate", "drain"), server, few, concurrency=30, watch=watch),
            "concurrency 30",
        ),
        Contestant(
            "River", partial(river.drain, server, count, watch=watch), "Go; MaxWorkers 2000, FetchCooldown 2 ms"
        ),
        reps=min(context.reps, 2),  # counts hardly vary
    )
    return [
        Table(
            "Statements for each event, draining",
            "statements/event",
            outcomes,
            metric="statements",
            bars={"kingdom": [Bar("<=", 0.1)]},
            higher_is_better=False,
            remarks=(f"{count:,} events (Procrastinate {few:,}), counted in the server's log (log_statement = all)",),
        ),
        Table("WAL for each event, draining", "bytes/event", outcomes, metric="wal", higher_is_better=False),
    ]


PARTS = (count,)
