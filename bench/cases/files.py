"""Files: durable publishing in batches, claiming from a crowded directory, and the file queues of others.

Nothing is deleted here while we measure: on ext4 the creation of files is slow for a while after a large delete.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter

from bench import ours
from bench.bare import files as bare
from bench.bars import Bar
from bench.cases import embedded
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.payload import STREAM, payloads
from bench.peers import Peer
from kingdom.bus import connect

TITLE = "files"
_ROUND = 100  # events for each claim and settle


def publish(context: Context) -> list[Table]:
    """One by one, and in batches."""
    folder, few, many = context.directory("files-publish"), *context.pick((300, 2_000), (2_000, 10_000))
    outcomes = context.race(
        Contestant(
            "bare, one by one", partial(bare.publish, folder, few, size=1), "write, fsync, rename, fsync folder"
        ),
        Contestant("bare, batches of 100", partial(bare.publish, folder, many, size=100), "fsync each, folder once"),
        Contestant("kingdom, one by one", partial(ours.local_publish, "files", folder, few, size=1), "bus.publish"),
        Contestant(
            "kingdom, batches of 100", partial(ours.local_publish, "files", folder, many, size=100), "bus.publish"
        ),
    )
    return [
        Table(
            "Durable publish",
            "events/s",
            outcomes,
            bars={"kingdom, batches of 100": [Bar(">=", 5.0, of="kingdom, one by one")]},
        )
    ]


def crowded(context: Context) -> list[Table]:
    """A few files pending, and very many."""
    rounds, pending = context.pick((20, 10_000), (100, 100_000))
    folder = context.directory("files-crowded")
    quiet, crowded = f"{_ROUND} pending", f"{pending:,} pending"
    urls = {name: ours.local_url("files", folder) for name in (quiet, crowded)}
    asyncio.run(_set_up(urls[quiet], 0))
    asyncio.run(_set_up(urls[crowded], pending - _ROUND))
    outcomes = context.race(
        *(
            Contestant(name, partial(_claim_and_settle, url, rounds), "claim 100 + settle")
            for name, url in urls.items()
        ),
        Contestant("bare", partial(bare.drain, folder, rounds * _ROUND), "rename, read, rename; no lease, no fencing"),
    )
    return [
        Table(
            "Claim and settle, by the number of pending files",
            "events/s",
            outcomes,
            bars={crowded: [Bar(">=", 0.8, of=quiet)]},
            remarks=(f"{rounds} rounds after the first; before each another bus publishes {_ROUND} more",),
        ),
        Table(
            "The first claim of a new process, which has to find out what is pending",
            "ms",
            [outcome for outcome in outcomes if outcome.name != "bare"],
            metric="first",
            higher_is_better=False,
        ),
    ]


async def _set_up(url: str, pending: int) -> None:
    async with connect(url) as bus:
        await bus.setup()
        await ours.fill(bus, payloads(pending))


async def _claim_and_settle(url: str, rounds: int) -> Figures:
    """Claim and settle what another bus just published, so that the number of pending files stays the same."""
    taken = 0.0
    first = 0.0
    async with connect(url) as publisher, connect(url) as consumer:
        for number in range(rounds + 1):
            await ours.fill(publisher, payloads(_ROUND))
            started = perf_counter()
            claimed = await consumer.claim(STREAM, worker="bench", limit=_ROUND)
            if number == 0:
                first = perf_counter() - started
            lost = await consumer.settle(done=claimed)
            assert len(claimed) == _ROUND, f"claimed {len(claimed)} of {_ROUND}"
            assert not lost, f"{len(lost)} leases lost"
            if number:
                taken += perf_counter() - started
    return {"rate": rounds * _ROUND / taken, "first": 1000 * first}


def peers(context: Context) -> list[Table]:
    """Beside the file queues of others."""
    folder, count = context.directory("files-peers"), context.pick(300, 1_500)
    lost, kept = "NOT DURABLE: no fsync", "file and folder fsynced"
    outcomes = context.race(
        Contestant("kingdom", partial(ours.local_queue, "files", folder, count, publishers=1), kept),
        Contestant("kingdom, publish_sync", partial(ours.local_queue_sync, "files", folder, count), kept),
        Contestant(
            "kingdom, 32 publishers", partial(ours.local_queue, "files", folder, count * 2, publishers=32), kept
        ),
        Contestant("persist-queue", partial(Peer("persistqueue", "files"), folder, count), f"{lost}; FileQueue"),
        Contestant("dirq", partial(Peer("dirq", "files"), folder, count), lost),
        Contestant("huey", partial(Peer("huey", "files"), folder, count), f"{lost}; a task is deleted before it runs"),
    )
    return embedded.tables(
        outcomes,
        ours=("kingdom", "kingdom, publish_sync", "kingdom, 32 publishers"),
        same=(),
        remark="No peer fsyncs a put: a power cut loses what was put last, so none of them is a bar",
    )


PARTS = (publish, crowded, peers)
