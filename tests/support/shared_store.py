"""Engines of several homes on one PostgreSQL store, each with agents that are lines of shell."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.sandbox.sandbox import Sandbox
from kingdom.gitops.checkpoint_remote import CheckpointRemote
from kingdom.gitops.settings import GitSettings
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.resources import Git, GitRef
from kingdom.workflow.domain.statuses import WORKFLOW_ACTIVE_STATUSES
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow, WorkflowTemplate
from kingdom.workflow.engine import WorkflowEngine, run_engine
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.usecases.workflows import create_workflow
from tests.support.repositories import Remote

LEASE_SECONDS = 30


def runs(name: str, script: str, query: str = "Do it.", **more: Any) -> WorkDefinition:
    """A Work whose agent is a line of shell."""
    outline = more.pop("outline", ())
    task = TaskDefinition("do", query, outline, retries=0)
    return WorkDefinition(name, (task,), "command", engine_options={"argv": ["sh", "-c", script]}, **more)


def waits_for(gate: Path) -> str:
    """Shell that says that it runs, and waits until a file is there."""
    return f"echo $$ > {gate}.waits; while [ ! -e {gate} ]; do sleep 0.05; done"


@asynccontextmanager
async def open_machine(
    folder: Path, url: str, *, lease: int = LEASE_SECONDS, remote: str | None = "origin"
) -> AsyncIterator[WorkflowContext]:
    """The workflow context of a home of its own; without ``remote`` its engine does not share the store."""
    git = GitSettings(checkpoint_remote=None if remote is None else CheckpointRemote(remote))
    environ = {"PATH": os.environ["PATH"], "KINGDOM_WORKFLOW_LEASE": str(lease)}
    engines = {"command": CommandEngine(environ={"PATH": os.environ["PATH"]})}
    async with open_home(WorkflowHome(folder, url), engines, environ=environ, sandbox=Sandbox("off"), git=git) as parts:
        yield parts


@asynccontextmanager
async def running_machine(folder: Path, url: str, **more: Any) -> AsyncIterator[tuple[WorkflowContext, WorkflowEngine]]:
    """A machine with an engine that also carries out the commands of other processes."""
    async with open_machine(folder, url, **more) as parts, run_engine(parts) as engine:
        yield parts, engine


async def create(parts: WorkflowContext, remote: Remote, *works: WorkDefinition) -> str:
    """A workflow of these works on a repository with one file."""
    if not (remote.folder / "README").exists():
        remote.commit({"README": "hello\n"})
        async with parts.store.transaction() as tx:
            await tx.gits.save(Git("git-1", "app", url=remote.url))
    async with parts.store.transaction() as tx:
        template = await tx.templates.find("tpl-1") or WorkflowTemplate(
            "tpl-1", "repair", works, git_refs=(GitRef("git-1"),)
        )
        template.works = works
        await tx.templates.save(template)
    return await create_workflow(parts, "tpl-1")


async def find(parts: WorkflowContext, workflow_id: str) -> Workflow:
    async with parts.store.reading() as tx:
        return await tx.workflows.get(workflow_id)


async def works_of(parts: WorkflowContext, workflow_id: str) -> dict[str, Work]:
    async with parts.store.reading() as tx:
        return {work.name: work for work in await tx.works.of_workflow(workflow_id)}


async def wait_until_resting(parts: WorkflowContext, workflow_id: str) -> Workflow:
    """The workflow when it needs no engine any more."""
    async with asyncio.timeout(60):
        while (workflow := await find(parts, workflow_id)).status in (*WORKFLOW_ACTIVE_STATUSES, "CREATED"):
            await asyncio.sleep(0.02)
    return workflow


async def wait_for_file(path: Path) -> None:
    async with asyncio.timeout(30):
        while not path.exists():
            await asyncio.sleep(0.02)


async def end_lease(url: str, folder: Path) -> None:
    """Let the time of a home's lease be over, as if nobody had renewed it."""
    await _execute(url, "UPDATE wf_engine_lease SET ends_at = now() - interval '1 s' WHERE home LIKE $1", f"%:{folder}")


async def holders(url: str) -> dict[str, str]:
    """The home of each workflow that is held."""
    connection = await _connect(url)
    try:
        return {
            row[0]: row[1].partition(":")[2] for row in await connection.fetch("SELECT workflow_id, home FROM wf_hold")
        }
    finally:
        await connection.close()


async def _execute(url: str, statement: str, *values: object) -> None:
    connection = await _connect(url)
    try:
        assert await connection.execute(statement, *values) == "UPDATE 1"
    finally:
        await connection.close()


async def _connect(url: str) -> Any:
    address, _, schema = url.partition("&schema=")
    return await asyncpg.connect(address, server_settings={"search_path": schema})


async def _serve_engine(folder: Path, url: str, lease: int) -> None:
    async with running_machine(folder, url, lease=lease) as (_, engine):
        print("the engine runs", flush=True)
        await engine.wait()


if __name__ == "__main__":  # an engine that is killed
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s")
    asyncio.run(_serve_engine(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
