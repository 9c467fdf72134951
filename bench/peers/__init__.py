"""The peers, each in its best configuration we know of, and each in an environment of its own.

``make bench`` installs what ``requirements/bench/<peer>.txt`` pins into ``.tools/bench/<peer>``, so that peers disagree
neither with each other nor with us about the versions of other packages. A peer is measured by a process of its
environment (``python -m bench.peers``): arguments go to its standard input, figures come back through a pipe. A peer
that is not installed is reported as not measured.

A peer in Go is a program of ours in ``bench/peers/<peer>``, which ``make bench`` builds into the same folder. Beside it
lies the Python module that calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import re
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from bench.harness import Figures, NotMeasured

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENTS: Final = ROOT / ".tools" / "bench"
_REQUIRED: Final = re.compile(r"^(?:require)?\s+([\w./-]+) v(\S+)$", re.MULTILINE)  # directly: no comment follows


@dataclass(frozen=True)
class Peer:
    """A measurement of a peer: a function of ``bench/peers/<module>.py``."""

    module: str
    function: str

    def __call__(self, *arguments: Any, **options: Any) -> Figures:
        """Measure it in a process of its environment."""
        python = ENVIRONMENTS / self.module / "bin" / "python"
        if not python.exists():
            raise NotMeasured(f"{self.module} is not installed in {python.parents[1]}: make bench installs it")
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                [str(python), "-m", "bench.peers", self.module, self.function, str(writing)],
                stdin=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)
        with process, open(reading, "rb") as answer:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it died: its exit code says more
                process.stdin.write(pickle.dumps((arguments, options)))
                process.stdin.close()
            answered = answer.read()
        if not answered:
            raise NotMeasured(f"its process ended with exit code {process.returncode}")
        return _figures_in(answered)


@dataclass(frozen=True)
class GoPeer:
    """A peer in Go: the program of ``bench/peers/<name>``."""

    name: str

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Program]:
        """Its program. It ends with its standard input, so also when this process is killed."""
        path = ENVIRONMENTS / self.name / "bench"
        if not path.exists():
            raise NotMeasured(f"{self.name} is not installed in {path.parent}: make bench builds it; it needs Go")
        process = await asyncio.create_subprocess_exec(path, stdin=PIPE, stdout=PIPE)
        try:
            yield Program(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


@dataclass(frozen=True)
class Program:
    """The running program of a peer in Go: a line of JSON for each command, a line of JSON for each answer."""

    process: Process

    async def ask(self, command: str, **arguments: Any) -> Figures:
        """Have a command done; return its figures."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # it died: its exit code says more
            await self.process.stdin.drain()
        answered = await self.process.stdout.readline()
        if not answered:
            raise NotMeasured(f"its process ended with exit code {await self.process.wait()}")
        return _figures_in(answered)


def _figures_in(answered: bytes) -> Figures:
    figures, failure = json.loads(answered)
    if failure is not None:
        raise NotMeasured(failure)
    return dict(figures)


def installed_versions() -> Iterator[tuple[str, str]]:
    """Yield name and version of every package in the environments of the peers, and of what those in Go require."""
    for folder in sorted(ENVIRONMENTS.glob("*/lib/python*/site-packages")):
        for found in distributions(path=[str(folder)]):
            yield found.metadata["Name"].lower().replace("_", "-"), found.version
    for program in sorted(ENVIRONMENTS.glob("*/bench")):
        with contextlib.suppress(FileNotFoundError):  # the program of a peer that is no more
            yield from _REQUIRED.findall((ROOT / "bench/peers" / program.parent.name / "go.mod").read_text())
