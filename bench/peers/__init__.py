"""The peers, each in its best configuration we know of, and each in an environment of its own.

``make bench`` installs what ``requirements/bench/<peer>.txt`` pins into ``.tools/bench/<peer>``, so that peers disagree
neither with each other nor with us about the versions of other packages. A peer is measured by a process of its
environment (``python -m bench.peers``): arguments go to its standard input, figures come back through a pipe. A peer
that is not installed is reported as not measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from bench.harness import Figures, NotMeasured

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENTS: Final = ROOT / ".tools" / "bench"


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
        figures, failure = json.loads(answered)
        if failure is not None:
            raise NotMeasured(failure)
        return dict(figures)


def installed_versions() -> Iterator[tuple[str, str]]:
    """Yield name and version of every package in the environments of the peers."""
    for folder in sorted(ENVIRONMENTS.glob("*/lib/python*/site-packages")):
        for found in distributions(path=[str(folder)]):
            yield found.metadata["Name"].lower().replace("_", "-"), found.version
