"""What ``kingdom run`` adds to the time of the agent, in a large repository, beside the worktree."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, time
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.repositories import make_repository

TITLE = "one request"
_OURS = "kingdom run, worktree aside"
_MAX_ADDED = 400.0
_AGENT = """\
#!/bin/sh
date +%s.%N > "$(dirname "$0")/began"
sleep 1
echo done > result.txt
echo '{"status": "success", "summary": "done"}' > "$KINGDOM_RESULT_PATH"
date +%s.%N > "$(dirname "$0")/ended"
"""


def added(context: Context) -> list[Table]:
    """Everything before, after and around the agent, without the worktree."""
    files, runs = context.pick(2_000, 20_000), context.pick(2, 5)
    folder = context.directory("request")
    source = folder / uuid4().hex
    make_repository(source, files)
    outcomes = context.race(Contestant(_OURS, partial(_run, folder, source, runs), "agent: a script of one second"))
    return [
        Table(
            f"What one request adds to the agent's own time, repository of {files:,} files",
            "ms",
            outcomes,
            metric="added",
            bars={_OURS: [Bar("<=", _MAX_ADDED)]},
            higher_is_better=False,
            remarks=(
                f"The median of {runs} requests after one that made the clone; not confined",
                "Taken off: the agent's time by its own clock, and a bare `git worktree add` after each request, "
                + ", ".join(f"{figures['worktree']:.0f} ms" for figures in outcomes[0].reps if figures is not None),
                "Before the agent, with the worktree / after it: "
                + ", ".join(
                    f"{figures['before']:.0f} / {figures['after']:.0f} ms"
                    for figures in outcomes[0].reps
                    if figures is not None
                ),
            ),
        )
    ]


def _run(folder: Path, source: Path, runs: int) -> Figures:
    place = folder / uuid4().hex
    (place / "home").mkdir(parents=True)
    agent = place / "agent"
    agent.write_text(_AGENT)
    agent.chmod(0o755)
    environment = {**os.environ, "HOME": str(place), "KINGDOM_SANDBOX": "off"}
    words = ("run", "Do it", "--no-watch", "--home", str(place / "home"), "--engine", "command")
    command = [sys.executable, "-m", "kingdom", *words, "--option", f"argv=[{agent}]"]
    taken: list[dict[str, float]] = []
    for _ in range(runs + 1):
        began = time()
        subprocess.run(command, cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)
        ended = time()
        started, stopped = (float((place / name).read_text()) for name in ("began", "ended"))
        worktree = _bare_worktree(place)
        around = {"before": started - began, "after": ended - stopped, "worktree": worktree}
        taken.append({**around, "added": around["before"] + around["after"] - worktree})
    return {name: 1e3 * median(one[name] for one in taken[1:]) for name in taken[0]}


def _bare_worktree(place: Path) -> float:
    """Add a worktree to the clone as a person would; return the seconds it took."""
    (repository,) = (place / "home" / "workflows" / "clones").glob("*/repo*")
    name = uuid4().hex
    words = ["git", "worktree", "add", "--quiet", "-b", name, str(place / "bare" / name), "refs/remotes/origin/main"]
    started = perf_counter()
    subprocess.run(words, cwd=repository, check=True)
    return perf_counter() - started


PARTS = (added,)
