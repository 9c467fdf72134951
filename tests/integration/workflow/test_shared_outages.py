"""Outages of a shared store: commands are carried out afterwards, and a takeover that failed leaves no trace."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.processes import find_process
from kingdom.base.uptime import uptime
from kingdom.workflow.commands import send_command, wait_for_command
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.errors import StoreError
from kingdom.workflow.event_queues import EventQueues
from kingdom.workflow.store.holds import EngineHolds, EngineReplaced
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.lifecycle import start_workflow
from tests.support.repositories import Remote
from tests.support.shared_store import (
    create,
    running_machine,
    runs,
    wait_for_file,
    wait_until_resting,
    waits_for,
    works_of,
)
from tests.support.workflow_fakes import World, opened
from tests.support.workflow_plans import created, work

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]


def _fail_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> asyncio.Event:
    """Have the next look at the holders of workflows fail; the event says that it did."""
    failed, look = asyncio.Event(), EngineHolds.others

    async def others(self: EngineHolds, workflow_ids: Any) -> Any:
        if workflow_ids and not failed.is_set():
            failed.set()
            raise error
        return await look(self, workflow_ids)

    monkeypatch.setattr(EngineHolds, "others", others)
    return failed


async def test_commands_are_carried_out_after_an_outage(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_machine(tmp_path / "a", postgres_url) as (parts, _):
        workflow_id = await create(parts, Remote(tmp_path / "remote"), runs("one", "echo 1 > one.txt"))
        failed = _fail_once(monkeypatch, StoreError("it is away"))
        sent = await send_command(parts.store.bus, "StartWorkflow", workflow_id)
        await wait_for_command(parts.store.bus, sent, 60)
        assert failed.is_set()
        assert (await wait_until_resting(parts, workflow_id)).status is WorkflowStatus.COMPLETED


async def test_an_engine_whose_worker_of_commands_failed_is_broken(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[BaseException] = []
    with contextlib.suppress(ZeroDivisionError):  # it is raised again when the engine is closed
        async with running_machine(tmp_path / "a", postgres_url) as (parts, engine):
            workflow_id = await create(parts, Remote(tmp_path / "remote"), runs("one", "true"))
            _fail_once(monkeypatch, ZeroDivisionError("of a kind that nobody thought of"))
            await send_command(parts.store.bus, "StartWorkflow", workflow_id)
            async with asyncio.timeout(60):
                try:
                    await engine.wait()
                except ZeroDivisionError as error:
                    broken.append(error)
    assert broken


class _Taking:
    """The holds of an engine that takes a workflow over: it counts as held until that has failed."""

    def __init__(self) -> None:
        self.held = True

    def is_mine(self, _: str) -> bool:
        return self.held


async def test_events_of_a_workflow_that_could_not_be_taken_over_are_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "w.db", World()) as parts:
        workflow_id = await created(parts, work("ship", "push"))
        await start_workflow(parts, workflow_id)
        waiting = await parts.store.bus.peek(STREAM)
        assert waiting
        queues, holds = EventQueues(parts, lambda _: None), _Taking()
        parts.store.holds = holds  # type: ignore[assignment]
        async with parts.locks.of(workflow_id):
            queues.add([record.envelope for record in waiting], polled=True)
            await asyncio.sleep(0)  # it waits for the lock
            holds.held = False
        await queues.idle()
        parts.store.holds = None
        assert await parts.store.bus.peek(STREAM) == waiting
        assert queues.known == set()
        queues.add([record.envelope for record in waiting], polled=True)
        await queues.idle()
        assert waiting[0] not in await parts.store.bus.peek(STREAM)


async def test_an_engine_that_gives_its_lease_up_commits_nothing_more(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agents are stopped before the lease ends: what becomes of them is no failure, and must not be recorded."""
    async with running_machine(tmp_path / "a", postgres_url, lease=6) as (parts, engine):
        await create(parts, Remote(tmp_path / "remote"), runs("one", "true"))

        async def away(_: EngineHolds) -> None:
            raise StoreError("it is away")

        refused: list[str] = []

        async def stop(*_: Any) -> None:
            try:
                async with parts.store.transaction() as tx:
                    await tx.gits.list()
            except EngineReplaced as error:
                refused.append(str(error))

        monkeypatch.setattr(EngineHolds, "renew", away)
        monkeypatch.setattr(parts.agents, "stop_others", stop)
        with pytest.raises(EngineReplaced, match="could not be renewed in time"):
            await engine.wait()
        assert len(refused) == 1


async def test_an_agent_that_stopped_because_the_lease_was_renewed_late_is_asked_again(
    tmp_path: Path, postgres_url: str
) -> None:
    gate = tmp_path / "gate"
    async with running_machine(tmp_path / "a", postgres_url, lease=60) as (parts, _):
        workflow_id = await create(parts, Remote(tmp_path / "remote"), runs("one", waits_for(gate)))
        sent = await send_command(parts.store.bus, "StartWorkflow", workflow_id)
        await wait_for_command(parts.store.bus, sent, 60)
        await wait_for_file(gate.with_name("gate.waits"))
        pid, times = int(gate.with_name("gate.waits").read_text()), parts.lease_file
        assert times is not None
        renewed = times.read_text()
        times.write_text(f"0 {uptime() + 30}")
        async with asyncio.timeout(30):
            while find_process(pid) is not None:
                await asyncio.sleep(0.02)
        times.write_text(renewed)
        gate.touch()
        workflow = await wait_until_resting(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        assert (await works_of(parts, workflow_id))["one"].attempt == 1
