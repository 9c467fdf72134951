"""For a process that does one operation of ``kingdom.gitops`` and is killed at a chosen point of it.

A kind of point is ``before`` (before a git is started), ``during`` (just after: git goes on alone) or ``files`` (before
a file or folder is made, moved or removed).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kingdom.gitops import CheckpointCommit, CheckpointMark, GitRunner, Worktree, merge, reset
from tests.support.repositories import Ground

FILE_CALLS = ("rename", "replace", "unlink", "mkdir", "symlink_to", "rmdir", "touch")


def install(kind: str, when: int) -> None:
    """Have this process kill itself at its call number ``when``."""
    made = 0

    def due() -> bool:
        nonlocal made
        made += 1
        return made == when

    if kind == "files":
        for name in FILE_CALLS:
            setattr(Path, name, _dying(getattr(Path, name), due))
        shutil.rmtree = _dying(shutil.rmtree, due)
        return
    start = GitRunner._start

    async def counted(*arguments: Any) -> Any:
        last = due()
        if last and kind == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        process = await start(*arguments)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return process

    GitRunner._start = counted  # type: ignore[method-assign]


def _dying(original: Callable[..., Any], due: Callable[[], bool]) -> Any:
    def call(*arguments: Any, **named: Any) -> Any:
        if due():
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    return call


async def checkpoint(ground: Ground, trees: Sequence[Worktree], mark: CheckpointMark, store: Path) -> None:
    """As the layer above does it: intent, commits, done."""
    _write(store, {"intent": mark.checkpoint})
    made = await ground.checkpoints.prepare(trees, mark)
    _write(store, {"intent": mark.checkpoint, "commits": [commit.to_dict() for commit in made]})
    await ground.checkpoints.complete(trees, mark, made)
    _write(store, {})


async def recover(ground: Ground, trees: Sequence[Worktree], mark: CheckpointMark, store: Path) -> None:
    """As the layer above does it at start."""
    noted = json.loads(store.read_text()) if store.exists() else {}
    if "commits" in noted:
        await ground.checkpoints.complete(trees, mark, [CheckpointCommit.from_dict(one) for one in noted["commits"]])
        _write(store, {})
    elif "intent" in noted:
        await ground.checkpoints.undo(trees, mark)
        await checkpoint(ground, trees, mark, store)


def _write(store: Path, note: dict[str, Any]) -> None:
    fresh = f"{store}.new"
    with open(fresh, "w") as file:
        json.dump(note, file)
    os.replace(fresh, store)


def act(folder: Path, url: str, operation: str, name: str, kind: str, when: int) -> None:
    """Do an operation, and die at the point number ``when``, if it comes to that."""
    install(kind, when)
    asyncio.run(_act(folder, url, operation, name))


async def _act(folder: Path, url: str, operation: str, name: str) -> None:
    ground = Ground(folder)
    if operation == "clone":
        await ground.clones.ensure(url)
    elif operation == "create":
        await ground.worktrees.create(ground.clones.find(url), name, "app")
    elif operation == "checkpoint":
        await checkpoint(ground, ground.worktrees.list("wf"), CheckpointMark("wf", name, "work"), folder / "store.json")
    elif operation == "reset":
        await reset(ground.worktrees.find("wf", "app"), name, clock=ground.clock)
    elif operation == "merge":
        await merge(ground.worktrees.find("wf", "app"), *name.split(), clock=ground.clock)
    elif operation == "release":
        await ground.worktrees.release(name, "app")
