"""A process with a general in it that is killed at a chosen point.

A point is right before the general makes, moves, opens for writing or removes a file, and right before and right after
it calls the queue or its agents. What the queue does inside has tests of its own. Of what is landed, points are right
before and right after its calls to the remote, its pauses while that is away, and the end of its task.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kingdom.agents.port import OnEvent, Order, Outcome
from kingdom.court.general import landing
from kingdom.gitops.pull_requests import PullRequests
from tests.support.fake_agents import FakeAgents, FakeRun, success
from tests.support.generals import NOW, Post, posted
from tests.support.repositories import plain_git

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
_QUEUE_CALLS = ("claim", "recall", "peek", "settle", "extend", "find")
RETRIES: dict[str, Any] = {"retries": 1}
MANIFESTS: dict[str, dict[str, Any]] = {"land": {"land": {"how": "pull-request"}, "evidence": ["commit"]}}
HELD_SECONDS = (60.0, 60.0)  # before the next tries to land: longer than a moment, so the task is held
HUB_FILE = "hub.json"  # beside the folders of the homes: the settings of a court that lands there


def fails_once(order: Order, number: int) -> Outcome:
    """The first soldier of a task fails, the second succeeds."""
    return Outcome("failed", error="not yet") if number == 1 else success(memory_updates=["It works the second time."])


def over_limit(order: Order, number: int) -> Outcome:
    """Every soldier finds the account over its limit."""
    return Outcome("rate_limited", error="limit reached", resets_at=NOW + 3600)


def commits(order: Order, number: int) -> Outcome:
    """The soldier commits something."""
    (order.cwd / "ls.py").write_text(order.run_id)
    plain_git(order.cwd, "add", "ls.py")
    plain_git(order.cwd, "commit", "--quiet", "--message", "Change ls.py")
    return success("It is fast now.")


SCRIPTS: dict[str, Callable[[Order, int], Outcome]] = {
    "retry": fails_once,
    "park": over_limit,
    "cancel": fails_once,
    "land": commits,
}


@contextlib.asynccontextmanager
async def posted_for(story: str, root: Path) -> AsyncIterator[Post]:
    """The post of a story."""
    async with posted(root, **MANIFESTS.get(story, RETRIES)) as post:
        if (hub := root.parent / HUB_FILE).exists():
            post.system = json.loads(hub.read_text())
        yield post


class Deadly:
    """Counts points, and kills this process at one of them."""

    def __init__(self, home: Path, when: int) -> None:
        self._home, self._queue = f"{home}/", f"{home}/queue/"
        self._when = when
        self.points = 0

    def point(self) -> None:
        self.points += 1
        if self.points == self._when:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook."""
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not writes and event not in _CHANGES:
            return
        path = arguments[0]
        named = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
        if named.startswith(self._home) and not named.startswith(self._queue):
            self.point()

    def around(
        self, call: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True
    ) -> Callable[..., Any]:
        """Something that is called between two points, if the arguments count."""

        async def counted(*arguments: Any, **named: Any) -> Any:
            if not counts(*arguments, **named):
                return await call(*arguments, **named)
            self.point()
            answer = await call(*arguments, **named)
            self.point()
            return answer

        return counted


class DeadlyAgents(FakeAgents):
    """Agents whose every call is a point."""

    deadly: Deadly

    async def start(self, order: Order, on_event: OnEvent | None = None) -> FakeRun:
        run: FakeRun = await self.deadly.around(super().start)(order, on_event)
        run.wait = self.deadly.around(run.wait)  # type: ignore[method-assign]
        run.stop = self.deadly.around(run.stop)  # type: ignore[method-assign]
        return run


async def _work(root: Path, story: str, when: int) -> int:
    deadly = Deadly(root / "home", when)
    async with posted_for(story, root) as post:
        agents = DeadlyAgents(root / "agents", SCRIPTS[story])
        agents.deadly = deadly
        post.agents = agents
        if story == "cancel":
            agents.gate.clear()
        if story == "land":
            landing.OUTAGE_SECONDS = HELD_SECONDS  # type: ignore[misc]
            for owner, name in ((post, "nap"), (landing, "push_branch"), (PullRequests, "ensure")):
                setattr(owner, name, deadly.around(getattr(owner, name)))
            post.bus.settle = deadly.around(post.bus.settle, lambda done, **_: bool(done))  # type: ignore[method-assign]
        else:
            for name in _QUEUE_CALLS:
                setattr(post.bus, name, deadly.around(getattr(post.bus, name)))
            sys.addaudithook(deadly.watch)
        general = post.general()
        await general.start()
        await post.work(general, lambda: told_off(post, story))
        await general.stop()
    return deadly.points


def told_off(post: Post, story: str) -> bool:
    """Whether a story is at its end."""
    states = [path.parent.name for path in sorted(post.home.queue.glob("tasks/*/task-*.json"))]
    if story == "park":
        return states == ["pending"] and bool(list(post.root.glob("agents/*.ended")))
    return set(states) == {"completed"}


def main(root: str, story: str, when: int) -> None:
    """Play a story with the general below ``root``, and write how many points it had, unless it is killed before."""
    points = asyncio.run(_work(Path(root), story, when))
    (Path(root) / "points").write_text(json.dumps(points))
