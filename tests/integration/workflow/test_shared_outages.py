"""The engine of a shared store carries out commands again after an outage, or says that it cannot."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from kingdom.workflow.commands import send_command, wait_for_command
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.errors import StoreError
from kingdom.workflow.store.holds import EngineHolds
from tests.support.repositories import Remote
from tests.support.shared_store import create, running_machine, runs, wait_until_resting

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
