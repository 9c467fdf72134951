"""A court on several machines: how fast it works, how soon another machine has a task, and what it costs idle."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from functools import partial
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from bench import ours, pg
from bench.bars import Bar
from bench.context import Context
from bench.court import cpu_seconds, event, make_machines, up, wait_until
from bench.harness import Contestant, Figures, Table
from bench.queues import Queues
from bench.stats import percentile
from kingdom.base.inotify import CREATE, FileChange, FileWatcher
from kingdom.court.home import Home
from kingdom.court.models import Event
from kingdom.court.queues import open_queues, put_documents

TITLE = "several machines"
_CONCURRENCY = 500
_TIMEOUT = 300.0
_SETTLING = 15.0  # seconds until start-up is over
_WARM_UP = 3
_PAUSE = (0.2, 0.5)  # seconds between two events: not in step with anybody's polling


def dispatch(context: Context) -> list[Table]:
    events, folder = context.pick(1_000, 5_000), context.directory("machines-dispatch")
    name = "king on one, general on the other"
    measured = context.race(
        Contestant(name, partial(_dispatch, context.postgres, folder, events), timeout=_TIMEOUT + 60),
        reps=min(context.reps, 3),
    )
    remark = "From the first task made to the last event completed, with all results and costs on the first machine"
    bars = {name: [Bar(">=", 200.0)]}
    return [Table(f"{events:,} events over two machines", "events/s", measured, bars=bars, remarks=(remark,))]


def reaction(context: Context) -> list[Table]:
    events, folder = context.pick(20, 100), context.directory("machines-reaction")
    name = "soldier on the other machine"
    measured = context.race(
        Contestant(name, partial(_reaction, context.postgres, folder, events), f"{events} events, one at a time"),
        reps=min(context.reps, 3),
    )
    title = "From an event put in on one machine until its soldier starts on another"
    return [
        Table(f"{title}, {part}", "ms", measured, metric=part, bars=bars, higher_is_better=False)
        for part, bars in (("p50", {}), ("p99", {name: [Bar("<", 150.0)]}))
    ]


def idle(context: Context) -> list[Table]:
    folder, seconds = context.directory("machines-idle"), context.pick(20.0, 60.0)
    kinds = {"one machine": (), "and one with a general": ("joined",), "and one that stands by": ("joined", "standby")}
    measured = context.race(
        *(
            Contestant(name, partial(_idle, context.postgres, folder, seconds, kind), timeout=seconds + 200)
            for name, kind in kinds.items()
        ),
        reps=min(context.reps, 3),
    )
    return [
        Table(
            f"{title} of an idle court on several machines, for each machine",
            unit,
            measured,
            metric=metric,
            bars={name: [Bar("<", most)] for name in kinds},
            higher_is_better=False,
        )
        for title, unit, metric, most in (("Statements", "a second", "statements", 5.0), ("CPU", "%", "cpu", 1.0))
    ]


def _dispatch(server: str, folder: Path, events: int) -> Figures:
    url = _new_schema(server)
    homes = make_machines(folder / uuid4().hex, url, joined=True, standby=False, concurrency=_CONCURRENCY)
    with Queues(homes["seat"], url) as queues:
        queues.fill(events)
        with up(homes["builder"], "--roles", "link,gen-0"), up(homes["seat"], "--roles", "king,link"):
            # A look counts all that waits: ten a second took as much of the processors as half a machine's link.
            wait_until(lambda: queues.finished(events), _TIMEOUT, "all events completed", every=1.0)
        seconds = queues.last_event() - queues.first_task()
        queues.check(events)
    return {"rate": events / seconds}


def _reaction(server: str, folder: Path, events: int) -> Figures:
    url = _new_schema(server)
    homes = make_machines(folder / uuid4().hex, url, joined=True, standby=False)
    with up(homes["seat"]), up(homes["builder"]):
        taken = asyncio.run(_put_all(url, homes["builder"], events))
    return {"p50": percentile(taken, 50), "p99": percentile(taken, 99)}


async def _put_all(url: str, builder: Home, events: int) -> list[float]:
    """Milliseconds from each event to its soldier."""
    pauses, taken = random.Random(1), []
    started = asyncio.Event()

    def note(_: list[FileChange]) -> None:
        started.set()

    watch = FileWatcher(asyncio.get_running_loop())
    builder.soldiers.mkdir(parents=True, exist_ok=True)
    watch.add(builder.soldiers, CREATE, note)
    with contextlib.closing(watch):
        async with open_queues(url) as bus:
            for number in range(_WARM_UP + events):
                await asyncio.sleep(pauses.uniform(*_PAUSE))
                started.clear()
                begin = perf_counter()
                await put_documents(bus, [Event.model_validate(event(number))])
                async with asyncio.timeout(30):
                    await started.wait()
                taken.append(1000 * (perf_counter() - begin))
    return taken[_WARM_UP:]


def _idle(server: str, folder: Path, seconds: float, kind: tuple[str, ...]) -> Figures:
    database = asyncio.run(pg.create_database(server, log_statements=True))
    url = pg.in_database(server, database)
    homes = make_machines(folder / uuid4().hex, url, joined="joined" in kind, standby="standby" in kind)
    with contextlib.ExitStack() as stack:
        pids = [pid for home in homes.values() for pid in stack.enter_context(up(home)).values()]
        time.sleep(_SETTLING)
        before = [cpu_seconds(pid) for pid in pids]
        figures = asyncio.run(_count(server, seconds, len(homes)))
        used = sum(map(cpu_seconds, pids)) - sum(before)
    return {"statements": figures["statements"], "cpu": 100 * used / seconds / len(homes)}


async def _count(server: str, seconds: float, machines: int) -> Figures:
    async with pg.ServerCounts(server) as counts:
        await asyncio.sleep(seconds)
    return counts.figures(round(seconds * machines))


def _new_schema(server: str) -> str:
    return ours.postgres_url(server, asyncio.run(pg.create_schema(server)))


PARTS = (dispatch, reaction, idle)
