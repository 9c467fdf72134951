"""How soon a handler starts when nothing else is going on, and what a worker costs while it waits."""

from __future__ import annotations

from functools import partial

from bench import ours
from bench.bare import postgres as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Table, side_by_side
from bench.peers import Peer, river

TITLE = "idle latency and idle cost"
_TRANSPORTS = ("kingdom, postgresql", "kingdom, sqlite", "kingdom, files")


def latency(context: Context) -> list[Table]:
    """Events trickle in; how soon each is handled."""
    server, folder, count = context.postgres, context.directory("latency"), context.pick(30, 120)
    outcomes = context.race(
        Contestant("bare", partial(bare.latency, server, count), "INSERT + NOTIFY → LISTEN → claim, asyncpg"),
        Contestant(_TRANSPORTS[0], partial(ours.postgres_latency, server, count), "Worker, LISTEN"),
        Contestant(
            _TRANSPORTS[1], partial(ours.local_latency, "sqlite", folder, count), "Worker, another bus publishes"
        ),
        Contestant(
            _TRANSPORTS[2], partial(ours.local_latency, "files", folder, count), "Worker, another bus publishes"
        ),
        Contestant("PGQueuer", partial(Peer("pgqueuer", "latency"), server, count), "LISTEN, durable"),
        Contestant("Procrastinate", partial(Peer("procrastinate", "latency"), server, count), "LISTEN"),
        Contestant("Oban", partial(Peer("oban", "latency"), server, count), "LISTEN, uvloop"),
        Contestant("FastStream outbox", partial(Peer("faststream_outbox", "latency"), server, count), "LISTEN"),
        Contestant("River", partial(river.latency, server, count), "Go; LISTEN, FetchCooldown 1 ms on both sides"),
    )
    titles = {
        "p50": ("Publish → handler start, p50", Bar("<=", 2.0, of="bare")),
        "p99": ("Publish → handler start, p99", Bar("<", 20.0)),
    }
    return [
        Table(
            title,
            "ms",
            outcomes,
            metric=metric,
            bars={name: [bar] for name in _TRANSPORTS},
            higher_is_better=False,
            remarks=(f"{count} events at 20 a second; the time to publish (durably) is part of it",),
        )
        for metric, (title, bar) in titles.items()
    ]


def idle(context: Context) -> list[Table]:
    """Nothing happens; what that costs."""
    server, folder, seconds = context.postgres, context.directory("idle"), context.pick(4.0, 10.0)
    outcomes = side_by_side(
        [
            Contestant(_TRANSPORTS[0], partial(ours.postgres_idle, server, seconds)),
            Contestant(_TRANSPORTS[1], partial(ours.local_idle, "sqlite", folder, seconds)),
            Contestant(_TRANSPORTS[2], partial(ours.local_idle, "files", folder, seconds)),
            Contestant("PGQueuer", partial(Peer("pgqueuer", "idle_cpu"), server, seconds)),
            Contestant("Procrastinate", partial(Peer("procrastinate", "idle_cpu"), server, seconds)),
            Contestant("Oban", partial(Peer("oban", "idle_cpu"), server, seconds)),
            Contestant("FastStream outbox", partial(Peer("faststream_outbox", "idle_cpu"), server, seconds)),
            Contestant("River", partial(river.idle_cpu, server, seconds), "Go; as for latency"),
        ],
        reps=context.pick(1, 3),
    )
    return [
        Table(
            "CPU of an idle worker's process",
            "%",
            outcomes,
            metric="cpu",
            bars={name: [Bar("<", 0.5)] for name in _TRANSPORTS},
            higher_is_better=False,
            remarks=(
                f"User and system time over {seconds:.0f} s, in percent of one core; all of them idle side by side",
            ),
        )
    ]


PARTS = (latency, idle)
