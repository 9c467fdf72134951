"""Runs of agents: what starting, watching and writing down a run costs over its program."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from bench.context import Context
from bench.court import nothing_to_do
from bench.harness import Contestant, Figures, Table
from bench.stats import percentile
from kingdom.agents.engine import Engine, InProcessEngine
from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import ScriptedEngine
from kingdom.agents.port import Order
from kingdom.agents.runner import Runner

TITLE = "agents"
_AT_ONCE = 100
_PROGRAM = "/bin/true"


def scripted(context: Context) -> list[Table]:
    runs = context.pick(500, 3_000)
    folder = context.directory("agents-scripted")
    outcomes = context.race(
        Contestant("scripted", partial(_many, folder, runs), f"{_AT_ONCE} at a time; each in the ledger, durably")
    )
    return [Table("Runs without a process", "runs/s", outcomes)]


def processes(context: Context) -> list[Table]:
    runs = context.pick(10, 40)
    folder = context.directory("agents-processes")
    outcomes = context.race(
        Contestant("bare", partial(_bare, runs), f"asyncio's create_subprocess_exec of {_PROGRAM}"),
        Contestant("command", partial(_one_by_one, folder, runs), "shim, transcript, timers, ledger, outcome"),
    )
    return [
        Table(
            f"A run of {_PROGRAM}, from its start to its outcome, p50",
            "ms",
            outcomes,
            metric="p50",
            higher_is_better=False,
        )
    ]


async def _many(folder: Path, runs: int) -> Figures:
    place, runner = _runner(folder)
    room = asyncio.Semaphore(_AT_ONCE)

    async def run(number: int) -> None:
        async with room:
            order = _order(place, number, "scripted", {"script": nothing_to_do()})
            outcome = await (await runner.start(order)).wait()
            assert outcome.status == "success", outcome

    started = perf_counter()
    await asyncio.gather(*map(run, range(runs)))
    seconds = perf_counter() - started
    await runner.close()
    return {"rate": runs / seconds}


async def _one_by_one(folder: Path, runs: int) -> Figures:
    place, runner = _runner(folder)
    taken = []
    for number in range(runs):
        started = perf_counter()
        outcome = await (await runner.start(_order(place, number, "command", {"argv": [_PROGRAM]}))).wait()
        taken.append(1000 * (perf_counter() - started))
        assert outcome.status == "success", outcome
    await runner.close()
    return {"p50": percentile(taken, 50)}


async def _bare(runs: int) -> Figures:
    taken = []
    for _ in range(runs):
        started = perf_counter()
        process = await asyncio.create_subprocess_exec(_PROGRAM)
        await process.wait()
        taken.append(1000 * (perf_counter() - started))
    return {"p50": percentile(taken, 50)}


def _runner(folder: Path) -> tuple[Path, Runner]:
    place = folder / uuid4().hex
    place.mkdir()
    engines: dict[str, Engine | InProcessEngine] = {"scripted": ScriptedEngine(), "command": CommandEngine()}
    runner = Runner(
        soldiers=place / "soldiers",
        sessions=place / "sessions",
        ledger=place / "ledger",
        engines=engines,
        environ=os.environ,
    )
    return place, runner


def _order(place: Path, number: int, engine: str, options: dict[str, object]) -> Order:
    return Order(
        run_id=f"run-{number}",
        task_id=f"task-20260207-{number:03d}",
        engine=engine,
        prompt="Do nothing.",
        cwd=place,
        result_path=place / "results" / f"{number}.json",
        options=options,
    )


PARTS = (scripted, processes)
