"""Draining while another connection holds a snapshot, so that no dead row can be cleaned up for the whole run."""

from __future__ import annotations

from functools import partial

from bench import ours
from bench.bare import postgres as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Table

TITLE = "drain on PostgreSQL beside a long snapshot"


def drain(context: Context) -> list[Table]:
    server = context.postgres
    count, fewer = context.pick((15_000, 10_000), (120_000, 40_000))
    outcomes = context.race(
        Contestant("kingdom", partial(ours.postgres_drain, server, count, batch=100), "nobody holds a snapshot"),
        Contestant(
            "kingdom, snapshot held",
            partial(ours.postgres_drain, server, count, batch=100, hold=True),
            "REPEATABLE READ on another connection",
        ),
        Contestant("bare loop", partial(bare.drain, server, fewer), f"{fewer:,} events, nobody holds a snapshot"),
        Contestant(
            "bare loop, snapshot held",
            partial(bare.drain, server, fewer, hold=True),
            f"{fewer:,} events, REPEATABLE READ on another connection",
        ),
    )
    return [
        Table(
            f"Drain of {count:,} events",
            "events/s",
            outcomes,
            bars={"kingdom, snapshot held": [Bar(">=", 0.8, of="kingdom")]},
            remarks=("The bare loop shows what the snapshot does to a plain claim: it walks over ever more dead rows",),
        )
    ]


PARTS = (drain,)
