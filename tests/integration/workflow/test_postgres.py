"""The engine on PostgreSQL: the same flows, the same recovery, one engine per store."""

from __future__ import annotations

import asyncio

import pytest

from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.engine import EngineAlreadyRunning, WorkflowEngine
from kingdom.workflow.store import ConcurrentChange
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.lifecycle import pause_workflow, resume_workflow, start_workflow
from tests.support.workflow_fakes import Stopper, World, house, opened, survived
from tests.support.workflow_plans import REPORTED, created, started, work

pytestmark = pytest.mark.postgres
PLAN = work("build", "plan", REPORTED), work("ship", "push")


async def test_a_workflow_runs_pauses_and_goes_back_to_a_checkpoint(postgres_url: str) -> None:
    async with house(postgres_url, World(silences={"push"})) as here:
        workflow_id = await started(here, *PLAN)
        await pause_workflow(here.parts, workflow_id)
        here.world.silences.clear()
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [part.attempt for part in works] == [1, 2]
        events = await here.parts.store.events(workflow_id, 0, 1000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert (await here.parts.store.bus.depth())[STREAM].pending == 0


async def test_many_workflows_at_once_whose_agents_answer_whenever_they_like(postgres_url: str) -> None:
    async with house(postgres_url, World(beside=True)) as here:
        ids = [await created(here.parts, *PLAN) for _ in range(8)]
        await asyncio.gather(*(start_workflow(here.parts, item) for item in ids))
        await here.idle()
        assert [(await here.read(item))[0].status for item in ids] == [WorkflowStatus.COMPLETED] * 8
        assert set(here.world.sent.values()) == {1}
        everything = await here.parts.store.events(None, 0, 10_000)
        assert [event.position for event in everything] == list(range(1, len(everything) + 1))


async def test_of_two_transactions_that_change_a_task_the_second_is_refused(postgres_url: str) -> None:
    async with opened(postgres_url, World()) as parts:
        workflow_id = await created(parts, *PLAN)
        async with parts.store.reading() as tx:
            work_id = (await tx.works.of_workflow(workflow_id))[0].id

        async def change(name: str, meanwhile: str | None = None) -> None:
            async with parts.store.transaction() as tx:
                part = await tx.works.find_at_work(work_id)
                assert part is not None
                if meanwhile is not None:
                    await change(meanwhile)
                part.tasks[0].name = name
                await tx.works.save(part)

        with pytest.raises(ConcurrentChange):
            await change("mine", meanwhile="theirs")
        async with parts.store.reading() as tx:
            assert (await tx.works.get(work_id)).tasks[0].name == "theirs"


@pytest.mark.parametrize("at", [26, 35, 44, 53, 62])
async def test_an_engine_that_dies_is_followed_by_one_that_comes_to_the_same_end(postgres_url: str, at: int) -> None:
    world, stopper = World(), Stopper(at)
    workflow_id = ""
    with survived():
        async with house(postgres_url, world, stopper) as here:
            workflow_id = await created(here.parts, *PLAN)
            await start_workflow(here.parts, workflow_id)
            await here.engine.idle()
    assert stopper.dead
    async with house(postgres_url, world) as here:
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        assert set(world.sent.values()) == {1}


async def test_a_second_engine_on_one_store_refuses(postgres_url: str) -> None:
    async with house(postgres_url) as here, opened(postgres_url, here.world) as parts:
        with pytest.raises(EngineAlreadyRunning, match=r"an engine runs on .* already: test"):
            async with WorkflowEngine(parts):
                pass
