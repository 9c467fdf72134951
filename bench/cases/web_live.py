"""Live events to many clients at once, and to clients that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from pathlib import Path
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.court import cpu_seconds, peak_mib
from bench.harness import Contestant, Figures, Outcome, Table
from bench.live import TOKEN, happening, listeners, server
from bench.stats import percentile
from tests.support.live import Wanderer

TITLE = "live events over WebSockets"
_SINGLE, _BATCH = "one message for each event", "several events in a message"
_CLIENTS = 200
_RATE = 100.0  # events per second
_AT_ONCE = 20  # clients that come and go at the same time
_WARM_UP = 1.0  # seconds


def crowd(context: Context) -> list[Table]:
    """Two hundred clients that hear everything."""
    folder, seconds = context.directory("web-live"), context.pick(5.0, 20.0)
    outcomes = context.race(
        *(
            Contestant(name, partial(_crowd, folder, seconds, batch=batch), f"{_CLIENTS} clients, {_RATE:.0f} events/s")
            for name, batch in ((_SINGLE, False), (_BATCH, True))
        ),
        reps=min(context.reps, 3),
    )
    remark = (
        "A server process, the clients in another, the events (half in the journal, half in a workflow) from a third; "
        f"{seconds:.0f} s"
    )
    return [
        _table(f"From the event to the client, {part}", "ms", outcomes, part, bars, remark)
        for part, bars in (("p50", []), ("p99", [Bar("<", 250.0)]))
    ] + [
        _table(
            "Events that were missing, repeated or out of order", "events", outcomes, "wrong", [Bar("<=", 0)], remark
        ),
        _table("CPU of the server, of one core", "%", outcomes, "cpu", [], remark),
        _table("Peak memory of the server", "MiB", outcomes, "memory", [], remark),
    ]


def coming_and_going(context: Context) -> list[Table]:
    """Clients that reconnect at random points with their last number."""
    folder, reconnects = context.directory("web-live"), context.pick(200, 1_000)
    name = f"{reconnects:,} reconnects"
    outcomes = context.race(
        Contestant(
            name, partial(_wander, folder, reconnects), f"{_AT_ONCE} clients, {_RATE:.0f} events/s", timeout=300.0
        ),
        reps=1,
    )
    remark = "Half of them leave without a word; each comes back with the last number it heard"
    return [
        Table(
            "Events that were missing, repeated or out of order after reconnects",
            "events",
            outcomes,
            metric="wrong",
            bars={name: [Bar("<=", 0)]},
            higher_is_better=False,
            remarks=(remark,),
        ),
        Table("Reconnects", "per second", outcomes, metric="rate", remarks=(remark,)),
    ]


def _table(title: str, unit: str, outcomes: list[Outcome], metric: str, bars: list[Bar], remark: str) -> Table:
    return Table(
        title,
        unit,
        outcomes,
        metric=metric,
        bars=dict.fromkeys((_SINGLE, _BATCH), bars) if bars else {},
        higher_is_better=False,
        remarks=(remark,),
    )


def _crowd(folder: Path, seconds: float, *, batch: bool) -> Figures:
    with server(folder / uuid4().hex) as served, listeners(served.url, _CLIENTS, batch=batch) as clients:
        before, began = cpu_seconds(served.pid), time.monotonic()
        events = asyncio.run(_happen(served.root, seconds))
        took, used = time.monotonic() - began, cpu_seconds(served.pid) - before
        heard = clients.heard(events)
        return {
            "p50": percentile(heard.late, 50),
            "p99": percentile(heard.late, 99),
            "wrong": float(heard.wrong + heard.lost),
            "cpu": 100 * used / took,
            "memory": peak_mib(served.pid),
        }


async def _happen(root: Path, seconds: float) -> int:
    async with happening(root) as events:
        await events.run(_RATE, seconds)
        return events.count


def _wander(folder: Path, reconnects: int) -> Figures:
    with server(folder / uuid4().hex) as served:
        return asyncio.run(_wander_at(served.url, served.root, reconnects))


async def _wander_at(url: str, root: Path, reconnects: int) -> Figures:
    wanderers = [Wanderer(url, TOKEN, seed, batch=seed % 2 == 0) for seed in range(_AT_ONCE)]
    async with happening(root) as events:
        producing = asyncio.create_task(events.run(_RATE, 3600.0))
        await asyncio.sleep(_WARM_UP)
        began = time.monotonic()
        await asyncio.gather(*(wanderer.lives(reconnects // _AT_ONCE) for wanderer in wanderers))
        took = time.monotonic() - began
        producing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await producing
        for wanderer in wanderers:
            await wanderer.until(events.count)
    wrong = sum(_wrong(wanderer.heard, events.count) for wanderer in wanderers)
    return {"wrong": float(wrong), "rate": reconnects / took}


def _wrong(heard: list[int], count: int) -> int:
    """How many numbers are not where they belong."""
    return abs(count - len(heard)) + sum(number != place for place, number in enumerate(heard, 1))


PARTS = (crowd, coming_and_going)
