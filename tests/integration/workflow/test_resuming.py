"""Going on after a pause, going back and staying there, and going on after the end, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kingdom.workflow.domain.plan import AddWork, RemoveWork, SetGitRefs, UpdateTask
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.errors import NotModifiable
from kingdom.workflow.usecases.lifecycle import FIRST_POINT, CannotResume, pause_workflow, resume_workflow
from kingdom.workflow.usecases.workflows import modify_workflow
from tests.support.workflow_fakes import House, Stopper, World, house, survived
from tests.support.workflow_plans import started, work

PLAN = work("build", "plan"), work("ship", "pack", "push"), work("tell", "mail")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


async def paused(here: House) -> str:
    """A workflow that was paused in the second task of its second Work."""
    here.world.silences.add("push")
    workflow_id = await started(here, *PLAN)
    await pause_workflow(here.parts, workflow_id)
    async with here.parts.store.transaction() as tx:
        part = (await tx.works.of_workflow(workflow_id))[1]
        part.session_id = "conversation"
        await tx.works.save(part)
    here.world.silences.clear()
    return workflow_id


async def run(here: House, workflow_id: str, **how: object) -> list[int]:
    """Resume it and let it run; the attempts of its works."""
    await resume_workflow(here.parts, workflow_id, **how)  # type: ignore[arg-type]
    await here.engine.idle()
    workflow, works = await here.read(workflow_id)
    assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
    return [part.attempt for part in works]


async def test_after_a_pause_it_goes_on_where_it_stopped_in_the_same_conversation(url: str) -> None:
    async with house(url) as here:
        workflow_id = await paused(here)
        assert await run(here, workflow_id) == [1, 2, 1]
        assert here.world.resets == []
        _, works = await here.read(workflow_id)
        assert works[1].session_id == "conversation"
        assert [task.attempt for task in works[1].tasks] == [1, 2], "what was done stayed done"


async def test_events_name_the_attempt_they_tell_of(url: str) -> None:
    async with house(url) as here:
        workflow_id = await paused(here)
        await run(here, workflow_id)
        events = await here.parts.store.events(workflow_id, 0, 1000)
        _, works = await here.read(workflow_id)
    ship = [event for event in events if event.payload.get("workId") == works[1].id]
    assert [event.attempt for event in ship if event.type == "WorkStarted"] == [1, 2]
    assert [event.attempt for event in ship if event.type == "QuerySent"] == [1, 1, 2]
    assert {event.attempt for event in events if event.type.startswith("Workflow")} == {None}


async def test_what_a_paused_work_did_is_dropped_when_somebody_says_so(url: str) -> None:
    async with house(url) as here:
        workflow_id = await paused(here)
        assert await run(here, workflow_id, discard=True) == [1, 2, 1]
        assert len(here.world.resets) == 1
        _, works = await here.read(workflow_id)
        assert works[1].session_id is None
        assert [task.attempt for task in works[1].tasks] == [2, 2]


async def test_after_a_failure_it_goes_on_from_the_last_checkpoint(url: str) -> None:
    async with house(url, World(fails=Counter(push=2))) as here:
        workflow_id = await started(here, *PLAN)
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.PAUSED
        assert await run(here, workflow_id) == [1, 2, 1]
        assert len(here.world.resets) == 1


async def test_it_goes_back_and_stays_there_until_the_plan_is_changed(url: str) -> None:
    async with house(url) as here:
        workflow_id = await paused(here)
        async with here.parts.store.transaction() as tx:
            (point,) = await tx.checkpoints.of_workflow(workflow_id)
        await resume_workflow(here.parts, workflow_id, checkpoint_id=point.id, hold=True)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "it went back to the checkpoint of build")
        assert [part.status for part in works] == [WorkStatus.COMPLETED, WorkStatus.PENDING, WorkStatus.PENDING]
        assert here.world.resets == [dict(point.hashes)]
        assert not here.world.alive
        changes = [
            UpdateTask(works[1].tasks[0].id, {"query": "pack it well"}),
            RemoveWork(works[2].id),
            AddWork(work("check", "look"), 1),
        ]
        await modify_workflow(here.parts, workflow_id, changes)
        assert await run(here, workflow_id) == [1, 1, 2]
        _, works = await here.read(workflow_id)
        assert [part.name for part in works] == ["build", "check", "ship"]
        assert works[2].tasks[0].response == "answer to pack it well"
        assert len(here.world.resets) == 1, "nothing is dropped when it goes on"


@pytest.mark.parametrize("hold", [False, True])
async def test_before_the_first_work_one_can_go_back_to_as_well(url: str, hold: bool) -> None:
    async with house(url) as here:
        workflow_id = await paused(here)
        if hold:
            await resume_workflow(here.parts, workflow_id, checkpoint_id=FIRST_POINT, hold=True)
            await here.engine.idle()
            workflow, works = await here.read(workflow_id)
            assert workflow.reason == "it went back to the start"
            assert {part.status for part in works} == {WorkStatus.PENDING}
            assert await run(here, workflow_id) == [2, 2, 1]
        else:
            assert await run(here, workflow_id, checkpoint_id=FIRST_POINT) == [2, 2, 1]
        assert here.world.resets == [{}]


async def test_going_back_that_failed_half_way_is_finished_by_the_next_resume(url: str) -> None:
    async with house(url) as here:
        workflow_id = await paused(here)
        here.world.refuses["reset"] = 1
        with pytest.raises(CannotResume):
            await resume_workflow(here.parts, workflow_id, checkpoint_id=FIRST_POINT)
        assert await run(here, workflow_id) == [2, 2, 1]
        assert here.world.resets == [{}]


async def test_a_completed_workflow_takes_another_work_and_goes_on(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, *PLAN)
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        with pytest.raises(NotModifiable, match="kingdom workflow follow-up plan TEXT has its agent do more"):
            await resume_workflow(here.parts, workflow_id)
        with pytest.raises(NotModifiable, match="add a work, then it can go on"):
            await modify_workflow(here.parts, workflow_id, [SetGitRefs(())])
        await modify_workflow(here.parts, workflow_id, [AddWork(work("more", "again"))])
        await here.engine.idle()
        workflow, _ = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "works were added after it was completed")
        async with here.parts.store.transaction() as tx:
            assert (await tx.gits.get("git-0")).used_by == {workflow_id}
        assert await run(here, workflow_id) == [1, 1, 1, 1]
        assert here.world.resets == []
        async with here.parts.store.transaction() as tx:
            assert [point.number for point in await tx.checkpoints.of_workflow(workflow_id)] == [1, 2, 3, 4]
            assert (await tx.gits.get("git-0")).used_by == set()


async def test_a_completed_workflow_can_go_back(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, *PLAN)
        async with here.parts.store.transaction() as tx:
            first, *_ = await tx.checkpoints.of_workflow(workflow_id)
        assert await run(here, workflow_id, checkpoint_id=first.id) == [1, 2, 2]


@pytest.mark.parametrize("at", range(0, 24, 2))
async def test_wherever_an_engine_dies_while_it_goes_back_the_workflow_stays_there(tmp_path: Path, at: int) -> None:
    world, stopper, path = World(), Stopper(), tmp_path / "w.db"
    async with house(path, world) as here:
        workflow_id = await paused(here)
    with survived():
        async with house(path, world, stopper) as here:
            stopper.at = len(stopper.passed) + at
            await resume_workflow(here.parts, workflow_id, checkpoint_id=FIRST_POINT, hold=True)
            await here.engine.idle()
    async with house(path, world) as here:
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        if workflow.reason != "it went back to the start":  # the wish was never committed
            await resume_workflow(here.parts, workflow_id, checkpoint_id=FIRST_POINT, hold=True)
            workflow, works = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "it went back to the start")
        assert {part.status for part in works} == {WorkStatus.PENDING}
        assert not world.alive
