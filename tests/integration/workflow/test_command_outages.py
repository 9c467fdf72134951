"""Commands to an engine while its store is away for a moment: at whichever transaction that is, it costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus.errors import TransportUnavailable
from kingdom.workflow.commands import COMMAND_STREAM, command_worker, prepare_commands, send_command
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.engine import command_handlers
from kingdom.workflow.errors import StoreError
from kingdom.workflow.store.transactions import WorkflowTransaction
from kingdom.workflow.usecases.lifecycle import pause_workflow, start_workflow
from tests.support.workflow_fakes import House, World, fast_folder, house
from tests.support.workflow_plans import created, work

PLAN = (work("plan", "think"), work("ship", "push"))
Prepare = Callable[[House, str], Awaitable[None]]


class Outage:
    """Has one transaction of a store fail: number ``at`` since it began."""

    def __init__(self, here: House, at: int, error: Exception) -> None:
        self.happened = False
        plain, store, count = here.parts.store.transaction, here.parts.store, 0

        @asynccontextmanager
        async def transaction() -> AsyncIterator[WorkflowTransaction]:
            nonlocal count
            count += 1
            if count - 1 == at:
                self.happened = True
                raise error
            async with plain() as tx:
                yield tx

        store.transaction = transaction  # type: ignore[method-assign]


@asynccontextmanager
async def carrying_out(here: House) -> AsyncIterator[None]:
    """Have the engine carry out commands."""
    await prepare_commands(here.parts.store.bus)
    worker = command_worker(here.parts.store.bus, command_handlers(here.parts))
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def until_over(here: House, workflow_id: str) -> None:
    async def is_over() -> bool:
        async with here.parts.store.reading() as tx:
            return (await tx.workflows.get(workflow_id)).status is WorkflowStatus.COMPLETED

    async with asyncio.timeout(60):
        while not await is_over():
            await asyncio.sleep(0.01)


async def nothing(_: House, __: str) -> None:
    """It is not started yet."""


async def paused(here: House, workflow_id: str) -> None:
    await start_workflow(here.parts, workflow_id)
    await here.idle()
    await pause_workflow(here.parts, workflow_id)
    await here.idle()
    here.world.silences.clear()


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as made:
        yield made


@pytest.mark.parametrize("error", [StoreError("it is away"), TransportUnavailable("it is away")], ids=["store", "bus"])
@pytest.mark.parametrize(
    ("kind", "arguments", "prepare", "silences"),
    [
        ("StartWorkflow", {}, nothing, set()),
        ("ResumeWorkflow", {}, paused, {"push"}),
        ("ResumeWorkflow", {"discard": True}, paused, {"push"}),
    ],
    ids=["start", "resume", "go back"],
)
async def test_a_command_is_carried_out_whenever_the_store_is_away(
    folder: Path,
    stride: int,
    kind: str,
    arguments: dict[str, Any],
    prepare: Prepare,
    silences: set[str],
    error: Exception,
) -> None:
    at = 0
    while True:
        async with house(folder / f"{at}.db", World(silences=set(silences))) as here:
            workflow_id = await created(here.parts, *PLAN)
            await prepare(here, workflow_id)
            async with carrying_out(here):
                outage = Outage(here, at, error)
                await send_command(here.parts.store.bus, kind, workflow_id, **arguments)
                await until_over(here, workflow_id)
                await here.idle()
            assert await here.parts.store.bus.dead(COMMAND_STREAM) == []
        if not outage.happened:
            break
        at += stride
    assert at > 3
