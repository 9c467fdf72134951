"""Every change that git makes during an operation, one after the other: git is killed there, or the disk is full, and
all is done again.
"""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from kingdom.gitops import GitError, GitRunner
from tests.chaos.git.operations import OPERATIONS, Scene
from tests.chaos.processes import Violation
from tests.chaos.strace import Call, read_trace

_CHANGES: Final = (
    "openat", "write", "rename", "renameat2", "unlink", "unlinkat", "link", "mkdir", "rmdir", "symlink", "ftruncate",
)  # fmt: skip
FAULTS: Final = {"killed": "signal=KILL", "full disk": "error=ENOSPC", "broken disk": "error=EIO"}
_SIGNS: Final = ("+++ killed by SIGKILL", "(INJECTED)")  # of a fault, in a trace
_TRIES: Final = 3  # helpers of a fetch share their work in more than one way: a point may not be met at once


class Point(NamedTuple):
    """The ``when``-th call of this name that a process of git number ``git`` makes."""

    git: int
    call: str
    when: int


class WatchedGit(GitRunner):
    """Notes what changes its processes make, or has a fault happen to one of them at a point."""

    def __init__(self, folder: Path, point: Point | None = None, fault: str = "") -> None:
        super().__init__()
        self._folder = folder
        self._point = point
        self._fault = fault
        self._started = 0

    async def _start(self, arguments: list[str], *more: Any) -> Process:
        self._started += 1
        number, point = self._started, self._point
        if point is None:
            tracing = ["-e", f"trace={','.join(_CHANGES)}"]
        elif point.git == number:
            tracing = ["-e", f"trace={point.call}", "-e", f"inject={point.call}:{self._fault}:when={point.when}"]
        else:
            return await super()._start(arguments, *more)
        tracing += ["-f", "-q", "-y", "-s", "0", "-o", str(self._trace(number))]
        program, self.program = self.program, "strace"
        try:
            return await super()._start([*tracing, program, *arguments], *more)
        finally:
            self.program = program

    @property
    def hit(self) -> bool:
        """Whether it happened at the point: to git itself, or to a helper of it."""
        assert self._point is not None
        trace = self._trace(self._point.git)
        return trace.exists() and any(sign in trace.read_text(errors="replace") for sign in _SIGNS)

    def points(self) -> list[Point]:
        """Where its processes changed something."""
        found: dict[Point, None] = {}
        for number in range(1, self._started + 1):
            made: Counter[tuple[int, str]] = Counter()
            for call in read_trace(self._trace(number)):
                made[call.thread, call.name] += 1
                if _changes(call):
                    found[Point(number, call.name, made[call.thread, call.name])] = None
        return list(found)

    def _trace(self, number: int) -> Path:
        return self._folder / f"trace-{number}"


def _changes(call: Call) -> bool:
    """Whether a call changes a file: a reader opens many, and much is written into pipes."""
    if call.name == "openat":
        return "O_CREAT" in call.text
    return call.name != "write" or "</" in call.text.partition(",")[0]


@dataclass
class Walk:
    """What was walked."""

    operation: str
    fault: str
    met: Counter[str] = field(default_factory=Counter)  # by call

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {name}" for name, count in sorted(self.met.items()))
        return f"git         {self.operation:<10} {self.fault:<11} {self.met.total():>4} times ({parts})"


def walk(folder: Path, operation: str, fault: str, chosen: Callable[[int], bool] = lambda _: True) -> Walk:
    """Have a fault (of ``FAULTS``) happen to git at each chosen point (from 0) of an operation in turn."""
    return asyncio.run(_walk(folder, operation, fault, chosen))


async def _walk(folder: Path, operation: str, fault: str, chosen: Callable[[int], bool]) -> Walk:
    doing, result = OPERATIONS[operation], Walk(operation, fault)
    before, now = folder / "before", folder / "now"  # always in one place: worktrees know where they are
    now.mkdir()
    await doing.prepare(Scene(now))
    shutil.copytree(now, before, symlinks=True)
    noting = WatchedGit(folder)
    undisturbed = Scene(now, noting)
    await doing.act(undisturbed)
    points = [point for number, point in enumerate(noting.points()) if chosen(number)]
    await doing.check(undisturbed)
    for point in points:
        for _ in range(_TRIES):
            shutil.rmtree(now)
            shutil.copytree(before, now, symlinks=True)
            for trace in folder.glob("trace-*"):
                trace.unlink()
            git = WatchedGit(folder, point, FAULTS[fault])
            await _fail_at(Scene(now, git), operation, f"{operation}, {fault} at {point}")
            if git.hit:
                result.met[point.call] += 1
                break
        else:
            raise Violation(f"{operation}: {point} was not met again in {_TRIES} tries")
    return result


async def _fail_at(scene: Scene, operation: str, where: str) -> None:
    doing, first = OPERATIONS[operation], ""
    try:
        await doing.act(scene)
    except GitError as error:
        first = str(error)
    after = Scene(scene.remote.parent)
    try:
        if doing.undo is not None and first:
            await doing.undo(after)
        await doing.act(after)
        await doing.check(after)
    except (GitError, AssertionError) as error:
        raise Violation(f"{where}: {first or 'no error'}; done again: {error!r}") from error
