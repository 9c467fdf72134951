"""One life of an engine: from its start to the end of its workflow, or to the point where it is killed.

Points are what is written down for good, and every call to the outside (git, agents, folders) before and after it. A
life that is to die kills itself with ``SIGKILL``: nothing is finished, nothing is flushed, nobody is told.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import ScriptedEngine
from kingdom.agents.port import Finished, OnEvent, Order
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.engine import run_engine
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.store.transactions import WorkflowTransaction
from kingdom.workflow.usecases.workflows import create_workflow
from tests.chaos.processes import say
from tests.chaos.workflow.reckoning import left_over, reckon
from tests.chaos.workflow.stories import Site, push

_PATIENCE: Final = 60.0  # seconds for a story, on a machine busy with other things
_LOOK: Final = 0.01
_RESTING: Final = (WorkflowStatus.COMPLETED, WorkflowStatus.FAILED, WorkflowStatus.CANCELLED)


class Points:
    """Counts the points a life comes by, and ends it at one of them."""

    def __init__(self, die_at: int | None) -> None:
        self._die_at = die_at
        self._passed = 0

    def __call__(self, name: str) -> None:
        self._passed += 1
        say(f"{self._passed} {name}")
        if self._passed == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Noting(ScriptedEngine):
    """Plays scripts, and notes each that it begins."""

    def __init__(self, log: Path, points: Points) -> None:
        super().__init__()
        self._log = log
        self._points = points

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Note the run, then play it."""
        handle = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(handle, f"{order.run_id}\n".encode())
        os.close(handle)
        self._points("agent begins")
        finished = await super().play(order, on_event)
        self._points("agent ends")
        return finished


class Watched:
    """Somebody outside; every call is a point before it begins and after it has ended."""

    def __init__(self, inner: Any, points: Points) -> None:
        self._inner = inner
        self._points = points

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        @functools.wraps(found)
        async def call(*arguments: Any, **options: Any) -> Any:
            self._points(f"before {name}")
            result = await found(*arguments, **options)
            self._points(f"after {name}")
            return result

        return call


def live(root: str, story: str, workflow_id: str, die_at: int | None) -> dict[str, Any]:
    """Live one life; returns what is there at its end, unless it ends at the point ``die_at``."""
    logging.basicConfig(level=logging.WARNING)
    return asyncio.run(_live(Site(Path(root)), story, workflow_id, die_at))


async def _live(site: Site, story: str, workflow_id: str, die_at: int | None) -> dict[str, Any]:
    points = Points(die_at)
    engines: dict[str, Any] = {"scripted": Noting(site.log, points), "command": CommandEngine(environ=site.environ)}
    async with open_home(WorkflowHome(site.home), engines, environ=site.environ) as parts:
        git, parts.git = parts.git, Watched(parts.git, points)
        parts.agents = Watched(parts.agents, points)
        parts.files = Watched(parts.files, points)
        _watch_commits(parts.store, points)
        await _create(site, parts, story, workflow_id)
        async with run_engine(parts, patience=5.0) as engine, asyncio.timeout(_PATIENCE):
            await _see_through(parts, workflow_id)
            await engine.idle()
            parts.git = git
            found = await reckon(parts, workflow_id)
            found["wrong"] += await left_over(parts, site)
            return found


def _watch_commits(store: Any, points: Points) -> None:
    plain = store.transaction

    @asynccontextmanager
    async def transaction() -> AsyncIterator[WorkflowTransaction]:
        before = store._connection.total_changes
        async with plain() as tx:
            yield tx
        if store._connection.total_changes != before:
            points("committed")

    store.transaction = transaction


async def _create(site: Site, parts: WorkflowContext, story: str, workflow_id: str) -> None:
    async with parts.store.transaction() as tx:
        there = await tx.workflows.find(workflow_id)
    if there is None:
        template_id = await site.save_template(parts, story)
        await create_workflow(parts, template_id, workflow_id=workflow_id)


async def _see_through(parts: WorkflowContext, workflow_id: str) -> None:
    while True:
        async with parts.store.transaction() as tx:
            workflow = await tx.workflows.get(workflow_id)
        if workflow.status in _RESTING:
            return
        await push(parts, workflow)
        await asyncio.sleep(_LOOK)
