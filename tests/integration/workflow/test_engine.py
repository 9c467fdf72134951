"""The engine itself: how events reach their handlers, and what happens when that does not go smoothly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kingdom.workflow.context import WorkflowLocks
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.store import StoreError
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.lifecycle import start_workflow
from tests.support.workflow_fakes import World, house
from tests.support.workflow_plans import created, started, work


async def test_an_answer_is_recorded_and_handled_in_one_transaction(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silent=True)) as here:
        workflow_id = await started(here, work("a", "one", "two"))
        published: list[str] = []
        here.parts.store.on_publish(lambda sent: published.extend(item.type for item in sent))
        _, (a,) = await here.read(workflow_id)
        await here.agents.answer(a, a.tasks[0])
        assert published == []  # it took no way through the bus
        assert (await here.told(workflow_id))[-5:] == [
            "QueryResponded", "TaskCompleted", "WorkStatusChanged", "TaskStarted", "QuerySent",
        ]  # fmt: skip
        await here.engine.idle()
        assert here.world.sent[a.id, a.tasks[1].id, 1] == 1


async def test_an_answer_that_comes_while_somebody_else_has_the_turn_waits_on_the_bus(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silent=True)) as here:
        workflow_id = await started(here, work("a", "one", "two"))
        _, (a,) = await here.read(workflow_id)
        async with here.parts.locks.of(workflow_id):
            await here.agents.answer(a, a.tasks[0])
            assert (await here.told(workflow_id))[-1] == "QueryResponded"
            assert (await here.parts.store.bus.depth())[STREAM].pending == 1
        await here.engine.idle()
        assert (await here.told(workflow_id))[-1] == "QuerySent"


async def test_an_answer_whose_handler_fails_is_kept_and_handled_from_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path / "w.db", World(silent=True)) as here:
        workflow_id = await started(here, work("a", "one", "two"))
        handler = here.engine._queues._handlers["QueryResponded"]
        plain, calls = handler.handle, []

        async def handle(step: Any, news: Any, made: object = None) -> None:
            await plain(step, news, made)
            calls.append(news)
            if len(calls) == 1:
                raise ZeroDivisionError

        monkeypatch.setattr(handler, "handle", handle)
        _, (a,) = await here.read(workflow_id)
        await here.agents.answer(a, a.tasks[0])
        await here.engine.idle()
        assert len(calls) == 2
        told = await here.told(workflow_id)
        assert (told.count("QueryResponded"), told.count("TaskCompleted"), told[-1]) == (1, 1, "QuerySent")
        assert here.parts.counters.retried == 0


async def test_a_store_that_is_away_for_a_while_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await created(here.parts, work("a", "one"))
        plain, away = here.parts.store.transaction, [3]

        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            task = asyncio.current_task()
            if task is not None and task.get_name().startswith("events-") and away[0]:
                away[0] -= 1
                raise StoreError("the disk is full")
            async with plain() as tx:
                yield tx

        monkeypatch.setattr(here.parts.store, "transaction", transaction)
        await start_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert away == [0]
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_bug_in_the_engine_is_not_taken_for_a_quiet_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path / "w.db") as here:
        monkeypatch.setattr(here.engine._queues, "_failed", None)
        monkeypatch.setattr(here.engine._queues._handlers["WorkStarted"], "handle", None)
        workflow_id = await created(here.parts, work("a", "one"))
        await start_workflow(here.parts, workflow_id)
        with pytest.raises(TypeError):
            await here.engine.wait()


async def test_an_engine_drains_when_it_stops(tmp_path: Path) -> None:
    world = World()
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await created(here.parts, work("a", "one", "two"))
        await start_workflow(here.parts, workflow_id)
    async with house(tmp_path / "w.db", world) as here:
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
    assert set(world.sent.values()) == {1}


async def test_turns_are_taken_one_after_the_other_and_leave_nothing_behind() -> None:
    turns, order = WorkflowLocks(), []

    async def take(name: str) -> None:
        async with turns.of("wf-1"):
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

    give_back = await turns.take("wf-1")
    assert give_back is not None
    assert await turns.take("wf-1") is None
    waiting = [asyncio.create_task(take(name)) for name in "ab"]
    await asyncio.sleep(0)
    assert order == []
    give_back()
    await asyncio.gather(*waiting)
    assert order == ["a", "a", "b", "b"]
    assert turns._locks == {}
