"""What a court costs while nothing happens."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.court import cpu_seconds, make_home, pss_mib, rss_mib, up
from bench.harness import Contestant, Figures, Outcome, Table

TITLE = "an idle court"
_GENERALS = 3
_SETTLING = 5.0  # seconds until start-up is over
_ALL = "all together"


def idle(context: Context) -> list[Table]:
    folder, seconds = context.directory("court-idle"), context.pick(15.0, 60.0)
    measured = context.race(
        Contestant(_ALL, partial(_idle, folder, seconds), timeout=seconds + 120), reps=min(context.reps, 3)
    )
    outcomes = _by_role(measured[0])
    remark = f"kingdom up with {_GENERALS} generals, a process for each role"
    return [
        Table(
            "CPU of an idle court, of one core",
            "%",
            outcomes,
            metric="cpu",
            bars={_ALL: [Bar("<", 1.0)]},
            higher_is_better=False,
            remarks=(f"{remark}; user and system time over {seconds:.0f} s",),
        ),
        Table(
            "Memory of an idle court",
            "MiB",
            outcomes,
            metric="pss",
            bars={_ALL: [Bar("<", 300.0)]},
            higher_is_better=False,
            remarks=(f"{remark}; proportional set size: what several share is counted once",),
        ),
        Table(
            "Memory of an idle court, what several share counted for each",
            "MiB",
            outcomes,
            metric="rss",
            higher_is_better=False,
            remarks=(f"{remark}; resident set size",),
        ),
    ]


def _idle(folder: Path, seconds: float) -> Figures:
    home = make_home(folder / uuid4().hex, generals=_GENERALS)
    with up(home) as pids:
        time.sleep(_SETTLING)
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(seconds)
        figures: Figures = {}
        for name, pid in pids.items():
            figures[f"{name}/cpu"] = 100 * (cpu_seconds(pid) - before[name]) / seconds
            figures[f"{name}/pss"] = pss_mib(pid)
            figures[f"{name}/rss"] = rss_mib(pid)
    for metric in ("cpu", "pss", "rss"):
        figures[f"{_ALL}/{metric}"] = sum(figures[f"{name}/{metric}"] for name in pids)
    return figures


def _by_role(measured: Outcome) -> list[Outcome]:
    """A row for each role, and one for all of them."""
    roles: dict[str, list[Figures | None]] = {_ALL: []}
    for number, figures in enumerate(measured.reps):
        for key, value in (figures or {}).items():
            name, _, metric = key.partition("/")
            reps = roles.setdefault(name, [])
            reps += [None] * (number + 1 - len(reps))
            reps[number] = {**(reps[number] or {}), metric: value}
    failure = measured.failure
    return [Outcome(name, reps=reps, failure=failure) for name, reps in sorted(roles.items())]


PARTS = (idle,)
