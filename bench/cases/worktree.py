"""How long a worktree takes to make, beside a bare ``git worktree add`` on the same repository."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.repositories import make_repository

TITLE = "worktrees"
_BARE = "git worktree add"
_OURS = "kingdom.gitops"
_BRANCH = "refs/remotes/origin/main"


def add(context: Context) -> list[Table]:
    files = context.pick(2_000, 20_000)
    folder = context.directory("worktree")
    make_repository(folder / "source", files)
    outcomes = context.race(
        Contestant(_BARE, partial(_bare, folder, folder / "source"), note="the command as a person types it"),
        Contestant(_OURS, partial(_ours, folder, folder / "source"), note="Worktrees.create"),
    )
    return [
        Table(
            f"Adding a worktree of {files:,} files",
            "s",
            outcomes,
            metric="seconds",
            bars={_OURS: [Bar("<=", 1.3, of=_BARE)]},
            higher_is_better=False,
            remarks=("On the bare clone that kingdom.gitops made; every worktree is new, none is deleted meanwhile",),
        )
    ]


async def _ours(folder: Path, source: Path) -> Figures:
    from kingdom.gitops import Clones, GitRunner, Worktrees

    clones = Clones(GitRunner(), folder / "clones", allow_local=True)
    clone = (await clones.ensure(str(source), fetch=False)).clone
    started = perf_counter()
    await Worktrees(clones, folder).create(clone, uuid4().hex, "app", "main")
    return {"seconds": perf_counter() - started}


async def _bare(folder: Path, source: Path) -> Figures:
    from kingdom.gitops import Clones, GitRunner

    clones = Clones(GitRunner(), folder / "clones", allow_local=True)
    repo = (await clones.ensure(str(source), fetch=False)).clone.repo
    name = uuid4().hex
    words = ["git", "worktree", "add", "--quiet", "-b", name, str(folder / "bare" / name), _BRANCH]
    started = perf_counter()
    subprocess.run(words, cwd=repo, check=True)
    return {"seconds": perf_counter() - started}


PARTS = (add,)
