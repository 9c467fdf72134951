"""Many events wait: how fast a king and a general whose soldiers end at once work them off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

from bench import ours, pg
from bench.bars import Bar
from bench.context import Context
from bench.court import cpu_seconds, make_home, peak_mib, up, wait_until
from bench.harness import Contestant, Figures, Table
from bench.queues import Queues

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
    stores: dict[str, Callable[[Path], str] | None] = {
        _OURS: None,
        "queues in SQLite": _file,
        "queues in PostgreSQL": partial(_schema, context.postgres),
    }
    outcomes = context.race(
        *(
            Contestant(
                name,
                partial(_dispatch, folder, events, database),
                note=f"a process each, scripted engine, concurrency {_CONCURRENCY}",
                timeout=_TIMEOUT + 60,
            )
            for name, database in stores.items()
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


def _dispatch(folder: Path, events: int, database: Callable[[Path], str] | None = None) -> Figures:
    place = folder / uuid4().hex
    url = None if database is None else database(place)
    home = make_home(place, concurrency=_CONCURRENCY, queues=url)
    with Queues(home, url) as queues:
        queues.fill(events)
        with up(home, "--roles", "king,gen-0") as pids:
            wait_until(lambda: queues.finished(events), _TIMEOUT, "all events completed", every=0.1)
            seconds = time.time() - queues.first_task()
            used = {name: cpu_seconds(pid) for name, pid in pids.items()}
            memory = peak_mib(pids["king"])
        queues.check(events)
    return {
        "rate": events / seconds,
        "memory": memory,
        "king": 1000 * used["king"] / events,
        "general": 1000 * used["gen-0"] / events,
    }


def _file(place: Path) -> str:
    return f"sqlite://{place}/queues.db"


def _schema(server: str, _: Path) -> str:
    return ours.postgres_url(server, asyncio.run(pg.create_schema(server)))


PARTS = (dispatch,)
