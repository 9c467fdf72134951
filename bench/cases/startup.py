"""How long the command line takes to answer ``--help``."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Table

TITLE = "start of the command line"
_BIN = Path(sys.executable).parent


def commands(context: Context) -> list[Table]:
    cache, runs = context.directory("pycache"), context.pick(3, 7)

    def contestant(name: str, *command: str) -> Contestant:
        return Contestant(name, partial(_wall, command, cache, runs))

    outcomes = context.race(
        contestant("import click", sys.executable, "-c", "import click"),
        contestant("kingdom --help", str(_BIN / "kingdom"), "--help"),
        contestant("procrastinate --help", str(_BIN / "procrastinate"), "--help"),
        contestant("pgq --help", str(_BIN / "pgq"), "--help"),
    )
    return [
        Table(
            "Wall time of a command",
            "s",
            outcomes,
            metric="seconds",
            bars={"kingdom --help": [Bar("<", 0.25), Bar("<", 2.5, of="import click")]},
            higher_is_better=False,
            remarks=(f"Each figure is the median of {runs} runs after one that wrote the bytecode",),
        )
    ]


def _wall(command: tuple[str, ...], cache: Path, runs: int) -> Figures:
    # Everybody's bytecode comes from one cache that we fill first: an installed package has it, a checkout may not.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    taken = []
    for _ in range(runs + 1):
        started = perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        taken.append(perf_counter() - started)
    return {"seconds": median(taken[1:])}


PARTS = (commands,)
