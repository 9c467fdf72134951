"""Questions of agents, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kingdom.workflow.commands import COMMAND_STREAM, SentCommand, command_worker, wait_for_command
from kingdom.workflow.domain.statuses import TaskStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.engine import command_handlers
from kingdom.workflow.errors import NotModifiable
from kingdom.workflow.usecases.lifecycle import answer_workflow, cancel_workflow, resume_workflow
from tests.support.workflow_fakes import Stopper, World, house, survived
from tests.support.workflow_plans import started, work

PLAN = work("build", "plan", "paint"), work("ship", "push")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


def asking() -> World:
    return World(asks=Counter(paint=1))


async def test_a_question_has_its_work_wait_and_is_no_failure(url: str) -> None:
    async with house(url, asking()) as here:
        workflow_id = await started(here, *PLAN, on_failure="fail")
        workflow, works = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "work build asks: Red or blue?")
        assert [part.status for part in works] == [WorkStatus.WAITING, WorkStatus.PENDING]
        assert workflow.work_statuses[works[0].id] is WorkStatus.WAITING
        assert (works[0].tasks[1].question, works[0].tasks[1].error) == ("Red or blue?", None)
        assert not here.world.alive
        assert "QueryFailed" not in await here.told(workflow_id)


async def test_an_answer_goes_to_the_task_that_asked(url: str) -> None:
    async with house(url, asking()) as here:
        workflow_id = await started(here, *PLAN)
        await answer_workflow(here.parts, workflow_id, "blue")
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        plan, paint = works[0].tasks
        assert (plan.attempt, paint.attempt, paint.answer) == (1, 2, "blue")
        assert here.world.resets == []
        with pytest.raises(NotModifiable, match="no work of it asks anything"):
            await answer_workflow(here.parts, workflow_id, "red")


DEFAULT = {"choices": ("red", "blue"), "default": "blue"}


async def test_a_question_that_nobody_answers_gets_its_default_at_the_deadline(url: str) -> None:
    """The clock of the world is behind that of the bus, so a deadline of 24 hours after it is over."""
    world = asking()
    world.default = DEFAULT
    async with house(url, world) as here:
        workflow_id = await started(here, *PLAN)
        workflow, works = await here.read(workflow_id)
        task = works[0].tasks[1]
        assert workflow.reason == "work build asks: Red or blue? (choices: red, blue)"
        assert (task.choices, task.default) == (("red", "blue"), "blue")
        waits = datetime.fromisoformat(task.deadline or "") - world.now
        assert timedelta(hours=23) < waits <= timedelta(hours=24)
        bus = here.parts.store.bus
        (record,) = [one async for one in bus.records(COMMAND_STREAM)]
        worker = command_worker(bus, command_handlers(here.parts))
        working = asyncio.create_task(worker.run())
        await wait_for_command(bus, SentCommand(record.envelope.event_id, "AnswerWorkflow", workflow_id), 60)
        worker.stop()
        await working
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert (workflow.status, works[0].tasks[1].answer) == (WorkflowStatus.COMPLETED, "blue")
        assert world.resets == []


async def test_a_person_who_answers_before_the_deadline_is_not_overruled(url: str) -> None:
    world = asking()
    world.default, world.deadline = DEFAULT, "2100-01-01T00:00:00+00:00"
    world.asks["push"] = 1
    async with house(url, world) as here:
        workflow_id = await started(here, *PLAN)
        bus = here.parts.store.bus
        (record,) = [one async for one in bus.records(COMMAND_STREAM)]
        assert record.status == "PENDING"
        assert not await bus.claim(COMMAND_STREAM, worker="w"), "it is not due"
        await answer_workflow(here.parts, workflow_id, "red")
        await here.engine.idle()
        late = record.envelope.payload["arguments"]
        await command_handlers(here.parts)["AnswerWorkflow"](workflow_id, **late)
        _, works = await here.read(workflow_id)
        assert (works[0].tasks[1].answer, works[1].status) == ("red", WorkStatus.WAITING)
        assert works[1].tasks[0].answer is None, "another question is open now"


async def test_going_back_forgets_question_and_answer(url: str) -> None:
    world = asking()
    world.asks["push"] = 1
    async with house(url, world) as here:
        workflow_id = await started(here, *PLAN)
        await answer_workflow(here.parts, workflow_id, "blue")
        await here.engine.idle()
        here.world.silent = True
        async with here.parts.store.transaction() as tx:
            (point,) = await tx.checkpoints.of_workflow(workflow_id)
        await resume_workflow(here.parts, workflow_id, checkpoint_id=point.id)
        await here.engine.idle()
        _, works = await here.read(workflow_id)
        assert (works[1].status, works[1].tasks[0].question) == (WorkStatus.RUNNING, None)


async def test_a_work_that_waits_can_be_cancelled(url: str) -> None:
    async with house(url, asking()) as here:
        workflow_id = await started(here, *PLAN)
        await cancel_workflow(here.parts, workflow_id)
        _, works = await here.read(workflow_id)
        assert [part.status for part in works] == [WorkStatus.CANCELLED] * 2
        assert works[0].tasks[1].status is TaskStatus.CANCELLED


@pytest.mark.parametrize("at", range(0, 20, 2))
async def test_wherever_an_answer_is_cut_off_it_is_given_once(tmp_path: Path, at: int) -> None:
    world = asking()
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *PLAN)
    stopper = Stopper()
    with survived():
        async with house(tmp_path / "w.db", world, stopper) as here:
            stopper.at = len(stopper.passed) + at
            await answer_workflow(here.parts, workflow_id, "blue")
            await here.engine.idle()
    async with house(tmp_path / "w.db", world) as here:
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        if workflow.status is WorkflowStatus.PAUSED:  # it was cut off before it was stored
            await answer_workflow(here.parts, workflow_id, "blue")
            await here.engine.idle()
            workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert (works[0].tasks[1].attempt, works[0].tasks[1].answer) == (2, "blue")
        assert set(world.sent.values()) == {1}
