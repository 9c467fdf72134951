"""An engine that takes commands: what other processes ask for is carried out beside the events it handles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from kingdom.workflow.commands import Carry, command_worker, prepare
from kingdom.workflow.engine import Engine
from kingdom.workflow.lease import StoreTaken
from kingdom.workflow.parts import Parts
from kingdom.workflow.usecases.cancel_workflow import CancelWorkflow
from kingdom.workflow.usecases.delete_workflow import DeleteWorkflow
from kingdom.workflow.usecases.pause_workflow import PauseWorkflow
from kingdom.workflow.usecases.resume_workflow import ResumeWorkflow
from kingdom.workflow.usecases.start_workflow import StartWorkflow

_AGAIN: Final = 0.1  # seconds between two tries to get the store


def carriers(parts: Parts) -> dict[str, Carry]:
    """What an engine can be asked for from outside, by the name of the use case."""
    return {
        "StartWorkflow": StartWorkflow(parts).execute,
        "PauseWorkflow": PauseWorkflow(parts).execute,
        "ResumeWorkflow": ResumeWorkflow(parts).execute,
        "CancelWorkflow": CancelWorkflow(parts).execute,
        "DeleteWorkflow": DeleteWorkflow(parts).execute,
    }


@asynccontextmanager
async def serving(parts: Parts, *, patience: float = 1.0) -> AsyncIterator[Engine]:
    """An engine on the store, with the commands of other processes carried out.

    Raises :class:`kingdom.workflow.lease.StoreTaken` when there is one already. It is tried for some seconds: whoever
    only looks whether there is an engine has the store for a moment.
    """
    async with AsyncExitStack() as stack:
        engine = await _enter(stack, parts, patience)
        await prepare(parts.store.bus)
        worker = command_worker(parts.store.bus, carriers(parts))
        working = asyncio.create_task(worker.run(), name="workflow-engine-commands")
        try:
            yield engine
        finally:
            worker.stop()
            await working


async def _enter(stack: AsyncExitStack, parts: Parts, patience: float) -> Engine:
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        try:
            return await stack.enter_async_context(Engine(parts))
        except StoreTaken:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_AGAIN)
