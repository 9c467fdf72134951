"""Commands to the engine of a store: asked for by one process, carried out by another, refused with the reason."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import EventBus, connect
from kingdom.workflow.commands import (
    COMMAND_STREAM,
    CommandPending,
    CommandRefused,
    carry_out_left,
    command_worker,
    prepare_commands,
    send_command,
    wait_for_command,
)
from kingdom.workflow.errors import HeldElsewhere, IllegalTransition


class Engine:
    """Carries out what it is told, but refuses to pause."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []

    async def resume(self, workflow_id: str, **arguments: Any) -> None:
        self.done.append((workflow_id, arguments))

    async def pause(self, workflow_id: str) -> None:
        raise IllegalTransition("workflow", workflow_id, "COMPLETED", "PAUSED")

    async def cancel(self, workflow_id: str) -> None:
        raise RuntimeError("something nobody thought of")


@pytest.fixture
async def buses(tmp_path: Path) -> AsyncIterator[tuple[EventBus, EventBus]]:
    """Two connections to one store: the asker's and the engine's."""
    url = f"sqlite:///{tmp_path}/workflows.db"
    async with connect(url) as asker, connect(url) as engine:
        await asker.setup()
        yield asker, engine


@contextlib.asynccontextmanager
async def running(bus: EventBus, engine: Engine) -> AsyncIterator[None]:
    await prepare_commands(bus)
    carriers = {"ResumeWorkflow": engine.resume, "PauseWorkflow": engine.pause, "CancelWorkflow": engine.cancel}
    worker = command_worker(bus, carriers)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


async def test_a_command_reaches_the_engine_with_its_arguments(buses: tuple[EventBus, EventBus]) -> None:
    engine = Engine()
    async with running(buses[1], engine):
        asked = await send_command(buses[0], "ResumeWorkflow", "wf-1", checkpoint="cp-1")
        await wait_for_command(buses[0], asked, 20)
    assert engine.done == [("wf-1", {"checkpoint": "cp-1"})]


async def test_a_refusal_comes_back_with_its_code_and_words(buses: tuple[EventBus, EventBus]) -> None:
    async with running(buses[1], Engine()):
        asked = await send_command(buses[0], "PauseWorkflow", "wf-1")
        with pytest.raises(CommandRefused, match="workflow wf-1 is COMPLETED and cannot become PAUSED") as caught:
            await wait_for_command(buses[0], asked, 20)
    assert caught.value.code == "WFL_ILLEGAL_TRANSITION"


async def test_an_error_nobody_thought_of_is_told_and_not_tried_for_ever(buses: tuple[EventBus, EventBus]) -> None:
    async with running(buses[1], Engine()):
        asked = await send_command(buses[0], "CancelWorkflow", "wf-1")
        with pytest.raises(CommandRefused, match="something nobody thought of"):
            await wait_for_command(buses[0], asked, 20)


async def test_a_command_waits_for_an_engine_that_comes_later(buses: tuple[EventBus, EventBus]) -> None:
    asked = await send_command(buses[0], "ResumeWorkflow", "wf-1")
    with pytest.raises(CommandPending, match=f"The command .{asked.id}. is still queued"):
        await wait_for_command(buses[0], asked, 0.05)
    engine = Engine()
    async with running(buses[1], engine):
        await wait_for_command(buses[0], asked, 20)
    assert engine.done == [("wf-1", {})]


async def test_refusals_of_long_ago_are_forgotten_when_an_engine_starts(
    buses: tuple[EventBus, EventBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(buses[1], Engine()):
        asked = await send_command(buses[0], "PauseWorkflow", "wf-1")
        with pytest.raises(CommandRefused):
            await wait_for_command(buses[0], asked, 20)
    await prepare_commands(buses[1])
    assert len(await buses[0].dead(COMMAND_STREAM)) == 1
    monkeypatch.setattr("kingdom.workflow.commands._REFUSED_KEPT_SECONDS", 0.0)
    await prepare_commands(buses[1])
    assert await buses[0].dead(COMMAND_STREAM) == []


async def test_a_command_for_a_workflow_of_another_machine_is_left_to_its_engine(
    buses: tuple[EventBus, EventBus],
) -> None:
    asker, other = buses
    refused = asyncio.Event()

    async def refuse(workflow_id: str) -> None:
        refused.set()
        raise HeldElsewhere(f"workflow {workflow_id} is held by another engine")

    await prepare_commands(other)
    command = await send_command(asker, "PauseWorkflow", "wf-1")
    carrying = asyncio.create_task(carry_out_left(asker, command, {"PauseWorkflow": refuse}))
    async with asyncio.timeout(30):
        await refused.wait()
        while not (claimed := await other.claim(COMMAND_STREAM, worker="holder", ids=[command.id])):
            await asyncio.sleep(0.01)
        await other.settle(done=claimed)
        await carrying
    assert [delivery.attempt for delivery in claimed] == [1], "it was given back as it was"
