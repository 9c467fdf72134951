"""Stores that a former version wrote: everything is carried over, and what was paused goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kingdom.workflow.domain.statuses import TaskStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.store import open_store
from kingdom.workflow.usecases.lifecycle import resume_workflow
from tests.support.workflow_fakes import World, house
from tests.support.workflow_stores import WORKFLOW_OF_VERSION_7, fill_as_version_7


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


@pytest.fixture
async def world(url: str) -> World:
    """A store of version 7, and the world around it."""
    world = World()
    world.ids[""] = 100
    async with open_store(url, world.clock) as store:
        await store.setup()
        await fill_as_version_7(store)
        assert (await store.setup())[0] == "008_tasks"
        async with store.reading() as tx:
            for tree in await tx.work_trees.of_workflow(WORKFLOW_OF_VERSION_7):
                world.trees[tree.id] = tree.base or "main"
    return world


async def test_tasks_in_the_rows_of_their_works_become_rows_of_their_own(url: str, world: World) -> None:
    async with open_store(url, world.clock) as store, store.session(readonly=True) as session:
        bodies = [json.loads(body) for (body,) in await session.fetch("SELECT body FROM wf_work ORDER BY rank")]
        rows = await session.fetch("SELECT work_id, status FROM wf_task ORDER BY work_id, rank")
    assert [body["name"] for body in bodies] == ["build", "left", "right", "join"]
    assert not any("tasks" in body for body in bodies)
    assert [status for work_id, status in rows if work_id == bodies[3]["id"]] == ["COMPLETED", "RUNNING", "PENDING"]


async def test_everything_is_read_as_it_was(url: str, world: World) -> None:
    async with open_store(url, world.clock) as store, store.reading() as tx:
        workflow = await tx.workflows.get(WORKFLOW_OF_VERSION_7)
        works = await tx.works.of_workflow(workflow.id)
        heads = await tx.works.heads(workflow.id)
        points = await tx.checkpoints.of_workflow(workflow.id)
    assert workflow.work_statuses == {work.id: work.status for work in works}
    assert [[task.name for task in work.tasks] for work in works] == [
        ["plan", "check"], ["l"], ["r"], ["merge", "tag", "end"],
    ]  # fmt: skip
    join = works[3]
    assert (join.merge, join.status, join.tasks[0].response) == (True, WorkStatus.PAUSED, "a zero byte: \x00, 앱")
    assert [task.status for task in join.tasks] == [TaskStatus.COMPLETED, TaskStatus.RUNNING, TaskStatus.PENDING]
    assert [head.after for head in heads] == [(), ("build",), ("build",), ("left", "right")]
    assert {work.id: work.checkpoint_id for work in works if work.checkpoint_id} == {
        point.work_id: point.id for point in points if point.valid
    }, "not those from before the reset"
    assert [head.done for head in heads] == [True, True, True, False]


async def test_what_a_former_version_paused_goes_on(url: str, world: World) -> None:
    async with house(url, world) as here:
        await resume_workflow(here.parts, WORKFLOW_OF_VERSION_7)
        await here.idle()
        workflow, works = await here.read(WORKFLOW_OF_VERSION_7)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [len(work.tasks) for work in works] == [2, 1, 1, 3]
        asked = {
            name
            for work in works
            for task in work.tasks
            for name in [task.name]
            if (work.id, task.id, task.attempt) in world.sent
        }
        assert asked == {"tag", "end"}, "what was done is not done again"
