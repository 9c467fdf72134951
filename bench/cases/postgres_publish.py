"""Publishing to PostgreSQL: in batches, and one by one."""

from __future__ import annotations

from functools import partial

from bench import turns
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Outcome, Table
from bench.peers import Peer, river

TITLE = "publish on PostgreSQL"
BATCH = 1000
_TURNS = "The bare loop and Kingdom in one process, {turn:,} events in turn; the peers in their own"


def batches(context: Context) -> list[Table]:
    """Many events for each call."""
    server = context.postgres
    many, few = context.pick((10_000, 1_000), (50_000, 4_000))
    turn = 2 * BATCH
    both, *peers = context.race(
        Contestant("bare unnest and kingdom", partial(turns.publish, server, many, size=BATCH, turn=turn)),
        Contestant("PGQueuer", partial(Peer("pgqueuer", "publish_batches"), server, many, BATCH), "enqueue([…])"),
        Contestant(
            "Procrastinate",
            partial(Peer("procrastinate", "publish_batches"), server, few, BATCH),
            "batch_defer_async",
        ),
        Contestant("Oban", partial(Peer("oban", "publish_batches"), server, few, BATCH), "enqueue_many, uvloop"),
        Contestant(
            "FastStream outbox",
            partial(Peer("faststream_outbox", "publish_batches"), server, many, BATCH),
            "publish_batch",
        ),
        Contestant("River", partial(river.publish_batches, server, many, BATCH), "Go; InsertManyFast (COPY)"),
    )
    return [
        Table(
            f"Publish in batches of {BATCH:,}",
            "events/s",
            [*_apart(both, "bare unnest", "unnest, asyncpg"), *peers],
            bars={"kingdom": [Bar(">=", 0.7, of="bare unnest")]},
            remarks=(
                "From the payload, a dictionary, to the commit: ids, envelopes and JSON are made within the clock",
                _TURNS.format(turn=turn),
            ),
        )
    ]


def singles(context: Context) -> list[Table]:
    """One event for each call."""
    server = context.postgres
    many, few = context.pick((1_000, 300), (5_000, 1_000))
    turn = 100
    both, *peers = context.race(
        Contestant("bare INSERT and kingdom", partial(turns.publish, server, many, size=1, turn=turn)),
        Contestant("PGQueuer", partial(Peer("pgqueuer", "publish_singles"), server, many), "enqueue"),
        Contestant("Procrastinate", partial(Peer("procrastinate", "publish_singles"), server, few), "defer_async"),
        Contestant("Oban", partial(Peer("oban", "publish_singles"), server, many), "enqueue, uvloop"),
        Contestant(
            "FastStream outbox", partial(Peer("faststream_outbox", "publish_batches"), server, few, 1), "publish"
        ),
        Contestant("River", partial(river.publish_singles, server, many), "Go; Insert, NOTIFY at most each 100 ms"),
    )
    return [
        Table(
            "Publish one by one, each durable before the next",
            "events/s",
            [*_apart(both, "bare INSERT", "prepared, one commit each, asyncpg"), *peers],
            bars={"kingdom": [Bar(">=", 0.7, of="bare INSERT")]},
            remarks=("One caller; the bare INSERT sends no notification", _TURNS.format(turn=turn)),
        )
    ]


def _apart(both: Outcome, bare: str, note: str) -> list[Outcome]:
    """The two that were measured in one process."""

    def one(metric: str) -> list[Figures | None]:
        return [None if figures is None else {"rate": figures[metric]} for figures in both.reps]

    return [
        Outcome(bare, note, one("bare"), both.failure),
        Outcome("kingdom", "bus.publish", one("kingdom"), both.failure),
    ]


PARTS = (batches, singles)
