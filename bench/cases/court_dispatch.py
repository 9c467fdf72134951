"""Many events wait: how fast a king and a general whose soldiers end at once work them off."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.court import count, cpu_seconds, event, make_home, peak_mib, up, wait_until
from bench.harness import Contestant, Figures, Table
from kingdom.court.home import Home
from kingdom.court.models import Event
from kingdom.court.queues import EVENTS, MESSAGES, TASKS, open_queues, put

TITLE = "dispatch"
_CONCURRENCY = 500
_TIMEOUT = 300.0
_OURS = "king and general"
_REMARK = (
    "From the first task made to the last event completed; each with its task, result, prompt, transcript, "
    "line in the ledger and two messages, durable before the event is completed"
)


def dispatch(context: Context) -> list[Table]:
    events = context.pick(1_000, 10_000)
    folder = context.directory("court-dispatch")
    outcomes = context.race(
        Contestant(
            _OURS,
            partial(_dispatch, folder, events),
            note=f"a process each, scripted engine, concurrency {_CONCURRENCY}",
            timeout=_TIMEOUT + 60,
        ),
        reps=min(context.reps, 3),
    )
    return [
        Table(
            f"{events:,} events from pending to completed",
            "events/s",
            outcomes,
            bars={_OURS: [Bar(">=", 300.0)]},
            remarks=(_REMARK,),
        ),
        Table(
            "Memory of the king, at most",
            "MiB",
            outcomes,
            metric="memory",
            bars={_OURS: [Bar("<", 120.0)]},
            higher_is_better=False,
        ),
        Table("CPU time of the king for an event", "ms", outcomes, metric="king", higher_is_better=False),
        Table("CPU time of the general for an event", "ms", outcomes, metric="general", higher_is_better=False),
    ]


def _dispatch(folder: Path, events: int) -> Figures:
    home = make_home(folder / uuid4().hex, concurrency=_CONCURRENCY)
    asyncio.run(_fill(home, events))
    with up(home, "--roles", "king,gen-0") as pids:
        wait_until(lambda: count(home, EVENTS, "completed") == events, _TIMEOUT, "all events completed", every=0.1)
        seconds = time.time() - _first_dispatch(home)
        used = {name: cpu_seconds(pid) for name, pid in pids.items()}
        memory = peak_mib(pids["king"])
    _check(home, events)
    return {
        "rate": events / seconds,
        "memory": memory,
        "king": 1000 * used["king"] / events,
        "general": 1000 * used["gen-0"] / events,
    }


def _first_dispatch(home: Home) -> float:
    first = min((home.queue / TASKS / "completed").iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))
    return datetime.fromisoformat(json.loads(first.read_text())["created_at"]).timestamp()


async def _fill(home: Home, events: int) -> None:
    async with open_queues(home.queue_url) as bus:
        for first in range(0, events, 1000):
            numbers = range(first, min(first + 1000, events))
            await put(bus, [Event.model_validate(event(number)) for number in numbers])


def _check(home: Home, events: int) -> None:
    """Everything that should be there is."""
    left = {state: count(home, EVENTS, state) for state in ("pending", "dispatched")}
    assert left == {"pending": 0, "dispatched": 0}, f"events are left: {left}"
    assert count(home, TASKS, "completed") == events, "tasks are missing"
    assert count(home, MESSAGES, "pending") == 2 * events, "messages are missing"
    results = [path for path in home.results.glob("task-*.json") if not path.stem.endswith("-raw")]
    assert len(results) == events, "results are missing"


PARTS = (dispatch,)
