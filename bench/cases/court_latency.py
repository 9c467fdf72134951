"""An event file is dropped into a court that has nothing to do: how soon it is with its general."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.court import count, drop, make_home, up
from bench.harness import Contestant, Figures, Table
from bench.stats import percentile
from kingdom.base.inotify import CREATE, MOVED_TO, FileChange, FileWatcher
from kingdom.court.home import Home
from kingdom.court.queues import EVENTS, TASKS

TITLE = "from an event file to its general"
_TOLD, _BLIND = "inotify", "notifications off"
_WARM_UP = 3
_PATIENCE = 30.0
_PAUSE = (0.2, 0.5)  # seconds between two events: not in step with anybody's polling


def latency(context: Context) -> list[Table]:
    folder = context.directory("court-latency")
    told, blind = context.pick(20, 100), context.pick(3, 10)
    outcomes = context.race(
        Contestant(_TOLD, partial(_measure, folder, told, notifications=True), f"{told} events"),
        Contestant(_BLIND, partial(_measure, folder, blind, notifications=False), f"{blind} events; everybody polls"),
        reps=min(context.reps, 3),
    )
    bars = {_TOLD: [Bar("<", 100.0)], _BLIND: [Bar("<", 10_000.0)]}
    remark = "Every role in a process of its own; one event at a time, the next when the court is idle again"
    steps = {"task": "its task is in progress", "soldier": "its soldier starts"}
    return [
        Table(
            f"From the file in pending/ until {step}, {part}",
            "ms",
            outcomes,
            metric=f"{name}.{part}",
            bars=bars if part == "p99" else {},
            higher_is_better=False,
            remarks=(remark,),
        )
        for name, step in steps.items()
        for part in ("p50", "p99")
    ]


def _measure(folder: Path, events: int, *, notifications: bool) -> Figures:
    home = make_home(folder / uuid4().hex)
    with up(home, notifications=notifications):
        taken = asyncio.run(_drop_all(home, events))
    return {
        f"{step}.p{percent}": percentile([times[step] for times in taken], percent)
        for step in ("task", "soldier")
        for percent in (50, 99)
    }


async def _drop_all(home: Home, events: int) -> list[dict[str, float]]:
    pauses, taken = random.Random(1), []
    for number in range(_WARM_UP + events):
        await asyncio.sleep(pauses.uniform(*_PAUSE))
        taken.append(await _drop_one(home, number))
    return taken[_WARM_UP:]


async def _drop_one(home: Home, number: int) -> dict[str, float]:
    """Milliseconds from the file to each step."""
    seen: dict[str, float] = {}
    with _watching(home, seen):
        started = perf_counter()
        drop(home, number)
        async with asyncio.timeout(_PATIENCE):
            while len(seen) < 2 or count(home, EVENTS, "completed") <= number:
                await asyncio.sleep(0.02)
    return {step: 1000 * (at - started) for step, at in seen.items()}


@contextlib.contextmanager
def _watching(home: Home, seen: dict[str, float]) -> Iterator[None]:
    watch = FileWatcher(asyncio.get_running_loop())
    try:
        watch.add(home.queue / TASKS / "in_progress", MOVED_TO, partial(_note, seen, "task"))
        watch.add(home.soldiers, CREATE, partial(_note, seen, "soldier"))
        yield
    finally:
        watch.close()


def _note(seen: dict[str, float], step: str, _: list[FileChange]) -> None:
    seen.setdefault(step, perf_counter())


PARTS = (latency,)
