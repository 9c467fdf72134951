"""A person has an agent do more, or something differently, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kingdom.workflow.domain.statuses import TaskStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.domain.work import Task, Work
from kingdom.workflow.errors import NotFound, NotModifiable
from kingdom.workflow.usecases.follow_up import follow_up_name, follow_up_workflow
from kingdom.workflow.usecases.lifecycle import cancel_workflow, pause_workflow, resume_workflow, start_workflow
from tests.support.workflow_fakes import House, Stopper, World, house, survived
from tests.support.workflow_plans import REPORTED, created, started, work

PLAN = work("build", "plan", "paint"), work("ship", "push")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


async def follow_up(here: House, workflow_id: str, text: str, work: str | None = None) -> list[Work]:
    """Say something and let the workflow go on; return its works."""
    async with here.parts.store.reading() as tx:
        name = await follow_up_name(tx, workflow_id, text)
    await follow_up_workflow(here.parts, workflow_id, text, work=work, name=name)
    await here.engine.idle()
    return (await here.read(workflow_id))[1]


def answer_of(task: Task) -> tuple[TaskStatus, int, str | None]:
    return task.status, task.attempt, task.answer


async def test_a_completed_workflow_gets_a_work_that_goes_on_in_the_last_conversation(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, *PLAN)
        *_, more = await follow_up(here, workflow_id, "Handle {{ quiet }}, too")
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [part.name for part in works] == ["build", "ship", "handle-quiet-too"]
        assert (more.continues, more.status) == ("ship", WorkStatus.COMPLETED)
        assert more.checkpoint_id is not None
        assert here.world.resets == [], "nothing that is done is lost"
        *_, again = await follow_up(here, workflow_id, "Handle {{ quiet }}, too")
        assert (again.name, again.continues) == ("handle-quiet-too 2", "handle-quiet-too")


async def test_a_review_with_no_work_behind_it_is_not_repeated(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, work("build", "paint", pause_after=True))
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        await follow_up(here, workflow_id, "More paint")
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_the_agent_gets_exactly_the_text(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, *PLAN)
        *_, more = await follow_up(here, workflow_id, "Write {{ issue.nothing }} and {% raw %}")
        assert more.tasks[0].query.count("{{ '{' }}") == 2, "markers are no variables"


async def test_after_a_review_the_reviewed_work_goes_on_and_is_reviewed_again(url: str) -> None:
    plan = work("look", "read", pause_after=True), work("build", "paint"), work("ship", "push", after=("look",))
    async with house(url) as here:
        workflow_id = await started(here, *plan)
        works = await follow_up(here, workflow_id, "Look at the tests as well")
        workflow, _ = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.PAUSED
        assert workflow.reason == "review after look-at-the-tests-as-well"
        assert [part.name for part in works] == ["look", "look-at-the-tests-as-well", "build", "ship"]
        assert [part.status for part in works[:2]] == [WorkStatus.COMPLETED] * 2
        assert works[3].after == ("look", "look-at-the-tests-as-well"), "what waits for the one waits for both"
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_work_that_was_paused_goes_on_with_its_task_and_the_text(url: str) -> None:
    async with house(url, World(silences={"paint"})) as here:
        workflow_id = await started(here, *PLAN)
        await pause_workflow(here.parts, workflow_id)
        here.world.silences.clear()
        works = await follow_up(here, workflow_id, "Use oil, not water")
        assert [part.name for part in works] == ["build", "ship"]
        plan, paint = works[0].tasks
        assert answer_of(plan) == (TaskStatus.COMPLETED, 1, None)
        assert answer_of(paint) == (TaskStatus.COMPLETED, 2, "Use oil, not water")
        assert here.world.resets == []


async def test_a_work_that_failed_goes_on_with_the_text_in_place(url: str) -> None:
    async with house(url, World(fails=Counter(paint=2))) as here:
        workflow_id = await started(here, *PLAN, on_failure="fail")
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.FAILED
        works = await follow_up(here, workflow_id, "The brush is in the shed")
        assert works[0].tasks[1].answer == "The brush is in the shed"
        assert [part.status for part in works] == [WorkStatus.COMPLETED] * 2
        assert here.world.resets == []


async def test_a_work_that_could_not_be_committed_repeats_its_last_task_with_the_text(url: str) -> None:
    async with house(url, World(refuses=Counter(commit=1))) as here:
        workflow_id = await started(here, *PLAN)
        build = (await here.read(workflow_id))[1][0]
        assert (build.status, build.current_task) == (WorkStatus.FAILED, None)
        build, ship = await follow_up(here, workflow_id, "Delete the big file")
        assert [answer_of(task) for task in build.tasks] == [
            (TaskStatus.COMPLETED, 1, None),
            (TaskStatus.COMPLETED, 2, "Delete the big file"),
        ]
        assert (build.status, build.error, ship.status) == (WorkStatus.COMPLETED, None, WorkStatus.COMPLETED)
        assert here.world.resets == []


async def test_the_query_is_sent_again_when_only_the_report_was_missing(url: str) -> None:
    async with house(url, World(report_fails=Counter(check=2))) as here:
        workflow_id = await started(here, work("look", REPORTED))
        (look,) = await follow_up(here, workflow_id, "Check the edges")
        (task,) = look.tasks
        assert answer_of(task) == (TaskStatus.COMPLETED, task.attempt, "Check the edges")
        runs = [run for run in here.world.sent if run[1] == task.id]
        assert (look.id, task.id, task.attempt) in runs


async def test_going_back_and_staying_there_is_followed_by_something_else(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, *PLAN)
        async with here.parts.store.transaction() as tx:
            first, _ = await tx.checkpoints.of_workflow(workflow_id)
        await resume_workflow(here.parts, workflow_id, checkpoint_id=first.id, hold=True)
        works = await follow_up(here, workflow_id, "Paint it blue first")
        assert [part.name for part in works] == ["build", "paint-it-blue-first", "ship"]
        assert works[1].continues == "build"
        assert [part.status for part in works] == [WorkStatus.COMPLETED] * 3


async def test_of_several_works_that_stopped_one_is_named(url: str) -> None:
    plan = work("left", "l", after=("start",)), work("right", "r", after=("start",)), work("join", "j")
    async with house(url, World(silences={"l", "r"})) as here:
        workflow_id = await started(here, *plan)
        await pause_workflow(here.parts, workflow_id)
        with pytest.raises(NotModifiable, match=r"several works of .* have stopped \(left, right\): name one of them"):
            await follow_up(here, workflow_id, "Faster")
        here.world.silences.clear()
        works = await follow_up(here, workflow_id, "Faster", "right")
        assert [part.tasks[0].answer for part in works] == [None, "Faster", None]
        with pytest.raises(NotModifiable, match="work left ran beside others, on a branch of its own"):
            await follow_up(here, workflow_id, "More", "left")
        with pytest.raises(NotFound, match="has no work 'middle': left, right, join"):
            await follow_up(here, workflow_id, "More", "middle")


async def test_what_cannot_be_followed_up_is_refused_with_what_to_do(url: str) -> None:
    async with house(url, World(silences={"paint"}, asks=Counter(push=1))) as here:
        workflow_id = await created(here.parts, *PLAN)
        with pytest.raises(NotModifiable, match=r"not started yet \(CREATED\); kingdom workflow start"):
            await follow_up(here, workflow_id, "More")
        await start_workflow(here.parts, workflow_id)
        await here.engine.idle()
        with pytest.raises(NotModifiable, match=r"do more now: it is at work \(RUNNING\); kingdom workflow pause"):
            await follow_up(here, workflow_id, "More")
        await pause_workflow(here.parts, workflow_id)
        with pytest.raises(NotModifiable, match="work ship has begun"):
            await follow_up(here, workflow_id, "More", "ship")
        here.world.silences.clear()
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        with pytest.raises(NotModifiable, match="kingdom workflow answer plan TEXT"):
            await follow_up(here, workflow_id, "More")
        await cancel_workflow(here.parts, workflow_id)
        with pytest.raises(NotModifiable, match=r"it is over for good \(CANCELLED\); kingdom workflow fork"):
            await follow_up(here, workflow_id, "More")


@pytest.mark.parametrize("at", range(0, 20, 2))
async def test_wherever_it_is_cut_off_the_work_is_added_once(tmp_path: Path, at: int) -> None:
    world = World()
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *PLAN)
    stopper = Stopper()
    with survived():
        async with house(tmp_path / "w.db", world, stopper) as here:
            stopper.at = len(stopper.passed) + at
            await follow_up_workflow(here.parts, workflow_id, "One more", name="one-more")
            await here.engine.idle()
    async with house(tmp_path / "w.db", world) as here:
        await here.engine.idle()
        works = (await here.read(workflow_id))[1]
        if len(works) < 3:  # it was cut off before it was stored
            await follow_up_workflow(here.parts, workflow_id, "One more", name="one-more")
            await here.engine.idle()
        await follow_up_workflow(here.parts, workflow_id, "One more", name="one-more")  # its command comes again
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert [part.name for part in works] == ["build", "ship", "one-more"]
        assert workflow.status is WorkflowStatus.COMPLETED
        assert set(world.sent.values()) == {1}
