"""Running contestants: interleaved, repetition by repetition, each measurement in a process of its own.

A fresh process for each measurement keeps contestants apart (imports, caches, garbage) and bounds a peer that hangs.
The contestants take turns within each repetition, and the one that begins moves on, so that a slow minute of the
machine hits all of them.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import multiprocessing
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from bench.bars import Bar
from bench.stats import Values

Figures = dict[str, float]
Measure = Callable[[], Any]  # picklable; returns Figures, or a coroutine of them
Run = Callable[[Measure, float], Figures]

# A fork server: children start from a clean process, yet fast. What most of them need is imported once, there.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["asyncio", "asyncpg", "kingdom.bus", "bench.harness"])


class NotMeasured(Exception):
    """A measurement that gave no figure, with the reason."""


@dataclass(frozen=True)
class Contestant:
    """Somebody who is measured: a name, how, and in which configuration (or with which durability)."""

    name: str
    measure: Measure
    note: str = ""
    timeout: float = 180.0
    x: float | None = None  # where a chart puts it, when the contestants differ by a number


@dataclass
class Outcome:
    """What one contestant reached in each repetition, and why a figure is missing."""

    name: str
    note: str = ""
    reps: list[Figures | None] = field(default_factory=list)
    failure: str | None = None
    x: float | None = None

    def values(self, metric: str) -> Values:
        return [None if figures is None else figures.get(metric) for figures in self.reps]


@dataclass
class Table:
    """One metric of several contestants, with the bars set for some of them."""

    title: str
    unit: str
    outcomes: list[Outcome]
    metric: str = "rate"
    bars: Mapping[str, Sequence[Bar]] = field(default_factory=dict)
    higher_is_better: bool = True
    note_title: str = "configuration"
    remarks: Sequence[str] = ()
    x: str = ""  # what grows from row to row, when something does


def race(contestants: Sequence[Contestant], reps: int, run: Run | None = None) -> list[Outcome]:
    """Measure everybody ``reps`` times, in turns. One that fails is not tried again, and the reason is kept."""
    run = run or in_child
    outcomes = {
        contestant.name: Outcome(contestant.name, contestant.note, x=contestant.x) for contestant in contestants
    }
    for rep in range(reps):
        first = rep % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            outcome = outcomes[contestant.name]
            figures = None
            if outcome.failure is None:
                try:
                    figures = run(contestant.measure, contestant.timeout)
                except NotMeasured as error:
                    outcome.failure = str(error)
            outcome.reps.append(figures)
    return list(outcomes.values())


def side_by_side(contestants: Sequence[Contestant], reps: int) -> list[Outcome]:
    """Measure everybody at the same time: for figures that others do not disturb, such as CPU time while idle."""
    with ThreadPoolExecutor(len(contestants)) as threads:
        return [outcome for (outcome,) in threads.map(lambda contestant: race([contestant], reps), contestants)]


def in_child(measure: Measure, timeout: float) -> Figures:
    """Run one measurement in a process of its own and return its figures."""
    receiver, sender = _processes.Pipe(duplex=False)
    child = _processes.Process(target=_report, args=(measure, sender))
    child.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            raise NotMeasured(f"no result within {timeout:.0f} s")
        answer: tuple[Figures | None, str | None] = receiver.recv()
    except EOFError:
        child.join()
        raise NotMeasured(f"its process ended with exit code {child.exitcode}") from None
    finally:
        receiver.close()
        if child.is_alive():
            child.join(10)
            child.kill()
        child.join()
    figures, failure = answer
    if failure is not None:
        raise NotMeasured(failure)
    assert figures is not None
    return figures


def _report(measure: Measure, sender: Connection) -> None:
    sender.send(taken(measure))


def taken(measure: Measure) -> tuple[Figures | None, str | None]:
    """Measure in this process; return the figures, or why there are none."""
    try:
        gc.collect()
        gc.freeze()  # what was imported is not scanned again and again while we measure
        figures = measure()
        if inspect.iscoroutine(figures):
            figures = asyncio.run(figures)
    except NotMeasured as error:
        return None, str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split()) or "no message"
        return None, f"{type(error).__name__}: {text} ({last.name}, line {last.lineno})"
    return figures, None
