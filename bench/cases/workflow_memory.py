"""What the process of an engine needs that has finished many workflows, and has some under way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.court import peak_mib, pss_mib, rss_mib
from bench.harness import Contestant, Figures, Table
from kingdom.workflow.adapters.slots import SLOTS_VARIABLE
from kingdom.workflow.commands import send_command, wait_for_command
from kingdom.workflow.context import TimeOrderedIds, system_clock
from kingdom.workflow.domain.plan import work_from
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow
from kingdom.workflow.home import WorkflowHome
from kingdom.workflow.store import open_store
from kingdom.workflow.store.database import DatabaseStore

TITLE = "memory of an engine"
_OURS = "kingdom workflow engine"
_RUNNING = 50
_TASKS = 5
_SETTLING = 2.0  # seconds


def memory(context: Context) -> list[Table]:
    finished, folder = context.pick(100, 1_000), context.directory("workflow-memory")
    outcomes = context.race(
        Contestant(
            _OURS,
            partial(_measure, folder, finished),
            f"{finished:,} finished by this very process, {_RUNNING} running",
            timeout=900.0,
        ),
        reps=min(context.reps, 2),
    )
    remark = f"Workflows of one Work with {_TASKS} tasks, scripted agents; those that run are at their first query"
    return [
        Table(
            "Memory (resident set size)", "MiB", outcomes, "rss", {_OURS: [Bar("<", 200.0)]}, False, remarks=(remark,)
        ),
        Table("Memory (proportional set size)", "MiB", outcomes, "pss", higher_is_better=False),
        Table("Memory (most it ever had, resident)", "MiB", outcomes, "peak", higher_is_better=False),
    ]


async def _measure(folder: Path, finished: int) -> Figures:
    root = folder / uuid4().hex
    root.mkdir()
    home = WorkflowHome(root / "workflows")
    home.root.mkdir()
    async with open_store(home.store, system_clock) as store:
        await store.setup()
        done = [await _create(store, [{"say": "It is done."}]) for _ in range(finished)]
        running = [await _create(store, [{"wait": 3600}]) for _ in range(_RUNNING)]
        async with _engine(root) as pid:
            await _start(store, done)
            await _until(store, WorkflowStatus.COMPLETED, finished)
            await _start(store, running)
            await _until(store, WorkflowStatus.RUNNING, _RUNNING)
            await asyncio.sleep(_SETTLING)
            return {"rss": rss_mib(pid), "pss": pss_mib(pid), "peak": peak_mib(pid)}


@contextlib.asynccontextmanager
async def _engine(root: Path) -> AsyncIterator[int]:
    command = (sys.executable, "-m", "kingdom", "workflow", "engine", "--home", str(root))
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, SLOTS_VARIABLE: str(_RUNNING)}
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 60)


async def _create(store: DatabaseStore, script: list[dict[str, Any]]) -> str:
    """A workflow as create_workflow leaves it; no engine is needed for that."""
    ids = TimeOrderedIds()
    tasks = tuple(TaskDefinition(f"task {number}", "Do it.") for number in range(_TASKS))
    definition = WorkDefinition("work", tasks, "scripted", engine_options={"script": script})
    workflow = Workflow(ids.new("wf"), "bench", system_clock())
    work = work_from(definition, workflow.id, 0, ids.new)
    workflow.work_changed(work.id, work.status)
    async with store.transaction() as tx:
        await tx.works.save(work)
        await tx.workflows.save(workflow)
    return workflow.id


async def _start(store: DatabaseStore, workflow_ids: list[str]) -> None:
    asked = [await send_command(store.bus, "StartWorkflow", workflow_id) for workflow_id in workflow_ids]
    for one in asked:
        await wait_for_command(store.bus, one, 600)


async def _until(store: DatabaseStore, status: WorkflowStatus, count: int) -> None:
    while True:
        async with store.reading() as tx:
            there = await tx.workflows.with_status(status)
            at_work = await tx.works.with_status(WorkStatus.RUNNING)
        if len(there) >= count and (status is WorkflowStatus.COMPLETED or len(at_work) >= count):
            return
        await asyncio.sleep(0.2)


PARTS = (memory,)
