"""The flows of a workflow, with the events in exactly the specified order."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.plan import AddTask, UpdateTask
from kingdom.workflow.domain.statuses import AgentStatus, TaskStatus, WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.workflow import TaskDefinition
from kingdom.workflow.errors import IllegalTransition, NotFound, StillInUse
from kingdom.workflow.usecases.catalog import delete_git
from kingdom.workflow.usecases.lifecycle import (
    CannotResume,
    cancel_workflow,
    pause_workflow,
    resume_workflow,
    start_workflow,
)
from kingdom.workflow.usecases.workflows import modify_workflow
from tests.support.workflow_fakes import House, World, house
from tests.support.workflow_plans import REPORTED, created, started, work

TWO_WORKS = work("build", "plan", REPORTED), work("ship", "push")
FIRST_QUERY = ["WorkSpaceCreated", "WorkStarted", "TaskStarted", "QuerySent", "AgentStarted", "WorkStatusChanged"]
ANSWER = ["QueryResponded", "TaskCompleted", "WorkStatusChanged"]


async def used_by(parts: WorkflowContext, git_id: str = "git-0") -> set[str]:
    async with parts.store.transaction() as tx:
        return (await tx.gits.get(git_id)).used_by


async def last_number(here: House, workflow_id: str) -> int:
    return (await here.parts.store.events(workflow_id, 0, 10_000))[-1].sequence


async def test_a_workflow_from_its_start_to_its_end(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await started(here, *TWO_WORKS)
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [part.status for part in works] == [WorkStatus.COMPLETED] * 2
        assert set(workflow.work_statuses.values()) == {WorkStatus.COMPLETED}
        assert workflow.work_tree_statuses == {"git-0": WorkTreeStatus.READY}
        assert await here.told(workflow_id) == [
            "WorkflowCreated", "WorkTreeCreated", "WorkflowStarted",
            *FIRST_QUERY,
            *ANSWER, "TaskStarted", "QuerySent",
            "QueryResponded", "ReportGenerationStarted",
            "ReportGenerated", "TaskCompleted", "WorkStatusChanged", "WorkCompleted",
            "AgentStopped", "CheckpointCreated",
            *FIRST_QUERY,
            *ANSWER, "WorkCompleted",
            "AgentStopped", "CheckpointCreated",
            "WorkflowCompleted",
        ]  # fmt: skip
        assert set(here.world.sent.values()) == {1}
        assert await used_by(here.parts) == set()
        assert len(here.world.trees) == 1  # active worktrees and branches stay


async def test_a_repository_is_in_use_while_its_workflow_runs(tmp_path: Path) -> None:
    world = World(silent=True)
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *TWO_WORKS)
        assert await used_by(here.parts) == {workflow_id}
        with pytest.raises(StillInUse, match="used by 1 workflows"):
            await delete_git(here.parts, "git-0")


async def test_a_worktree_that_cannot_be_made_fails_the_workflow_and_it_can_be_resumed(tmp_path: Path) -> None:
    world = World()
    world.refuses["prepare"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *TWO_WORKS)
        workflow, _ = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.FAILED
        assert workflow.reason == "a worktree could not be made: prepare does not work today"
        assert (await here.told(workflow_id))[1:] == ["WorkTreeFailed", "WorkflowFailed"]
        assert await used_by(here.parts) == set()
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_workflow_that_was_only_prepared_waits_until_it_is_started(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await created(here.parts, *TWO_WORKS)
        await start_workflow(here.parts, workflow_id, prepare_only=True)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.READY
        await start_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        with pytest.raises(IllegalTransition, match=r"cannot be started: it is done \(COMPLETED\)"):
            await start_workflow(here.parts, workflow_id)


# ── pause, resume, cancel ─────────────────────────────────────────────────────────────────────────────────────────────


async def paused(here: House) -> str:
    """A workflow of two works, paused at the first task of the second."""
    workflow_id = await created(here.parts, *TWO_WORKS)
    here.world.silences.add("push")
    await start_workflow(here.parts, workflow_id)
    await here.engine.idle()
    await pause_workflow(here.parts, workflow_id, "enough for today")
    await here.engine.idle()
    return workflow_id


async def test_pausing_stops_the_agent_first_and_says_so_once(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await paused(here)
        workflow, works = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "enough for today")
        assert [part.status for part in works] == [WorkStatus.COMPLETED, WorkStatus.PAUSED]
        assert works[1].agent_status is AgentStatus.STOPPED
        assert here.world.alive == set()
        assert (await here.told(workflow_id))[-1] == "WorkflowPaused"
        assert await used_by(here.parts) == {workflow_id}
        with pytest.raises(IllegalTransition, match="cannot be paused: it has stopped and can go on"):
            await pause_workflow(here.parts, workflow_id)


async def test_discarding_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await paused(here)
        here.world.silences.clear()
        before = await last_number(here, workflow_id)
        await resume_workflow(here.parts, workflow_id, discard=True)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [part.attempt for part in works] == [1, 2]
        assert here.world.resets == [{"git-0": next(iter(here.world.commits.values()))["git-0"]}]
        assert await here.told(workflow_id, before) == [
            "WorkflowResumed", *FIRST_QUERY, *ANSWER, "WorkCompleted", "AgentStopped", "CheckpointCreated",
            "WorkflowCompleted",
        ]  # fmt: skip
        resumed = (await here.parts.store.events(workflow_id, before, 1))[0]
        assert resumed.payload == {"workflowId": workflow_id, "fromWorkId": works[1].id}


async def test_discarding_without_a_checkpoint_goes_back_to_the_base(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silences={"plan"})) as here:
        workflow_id = await started(here, *TWO_WORKS)
        await pause_workflow(here.parts, workflow_id)
        here.world.silences.clear()
        await resume_workflow(here.parts, workflow_id, discard=True)
        await here.engine.idle()
        assert here.world.resets == [{}]
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_going_back_to_a_chosen_checkpoint_undoes_what_came_after_it(tmp_path: Path) -> None:
    plan = [work(f"w{number}", TaskDefinition("t", "t", ("A",))) for number in range(4)]
    plan[3] = work("w3", "wait")
    async with house(tmp_path / "w.db", World(silences={"wait"})) as here:
        workflow_id = await started(here, *plan)
        await pause_workflow(here.parts, workflow_id)
        async with here.parts.store.transaction() as tx:
            points = sorted(await tx.checkpoints.of_workflow(workflow_id), key=lambda point: point.id)
        with pytest.raises(NotFound, match=r"no valid checkpoint cp-9; it has w0 \(cp-"):
            await resume_workflow(here.parts, workflow_id, checkpoint_id="cp-9")
        assert len(here.world.reports) == 3
        here.world.silent = True
        await resume_workflow(here.parts, workflow_id, checkpoint_id=points[0].id)
        await here.engine.idle()
        assert here.world.resets == [dict(points[0].hashes)]
        assert len(here.world.reports) == 1
        _, works = await here.read(workflow_id)
        assert [part.status for part in works] == [
            WorkStatus.COMPLETED, WorkStatus.RUNNING, WorkStatus.PENDING, WorkStatus.PENDING,
        ]  # fmt: skip
        assert [part.attempt for part in works] == [1, 2, 2, 2]
        async with here.parts.store.transaction() as tx:
            points = sorted(await tx.checkpoints.of_workflow(workflow_id), key=lambda point: point.id)
        assert [point.valid for point in points] == [True, False, False]


async def test_an_answer_of_an_attempt_that_is_over_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silences={"plan"})) as here:
        workflow_id = await started(here, *TWO_WORKS)
        _, old = await here.read(workflow_id)
        await pause_workflow(here.parts, workflow_id)
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        await here.agents.answer(old[0], old[0].tasks[0])
        await here.engine.idle()
        assert here.parts.counters.refused == 1
        _, works = await here.read(workflow_id)
        assert works[0].tasks[0].status is TaskStatus.RUNNING
        await here.agents.answer(works[0], works[0].tasks[0])
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_tree_that_cannot_be_reset_leaves_the_workflow_paused_with_the_reason(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await paused(here)
        here.world.silences.clear()
        here.world.refuses["reset"] = 1
        with pytest.raises(CannotResume, match="reset does not work today"):
            await resume_workflow(here.parts, workflow_id, discard=True)
        workflow, _ = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.PAUSED
        assert workflow.reason == "it could not be resumed: reset does not work today"
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_workflow_whose_repository_was_deleted_says_so_and_stays_as_it_is(tmp_path: Path) -> None:
    world = World()
    world.breaks["build"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *TWO_WORKS)
        await delete_git(here.parts, "git-0")  # a failed workflow uses nothing
        with pytest.raises(NotFound, match=r"no repository git-0 .* take it out of the workflow"):
            await resume_workflow(here.parts, workflow_id)
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.FAILED


async def test_cancelling_stops_everything_and_frees_what_was_used(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silences={"check"})) as here:
        workflow_id = await started(here, *TWO_WORKS)
        await cancel_workflow(here.parts, workflow_id)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.CANCELLED
        assert [part.status for part in works] == [WorkStatus.CANCELLED] * 2
        assert [task.status for task in works[0].tasks] == [TaskStatus.COMPLETED, TaskStatus.CANCELLED]
        assert here.world.alive == set()
        assert (await here.told(workflow_id))[-1] == "WorkflowCancelled"
        assert await used_by(here.parts) == set()


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_broken_agent_fails_the_workflow_which_can_be_resumed(tmp_path: Path) -> None:
    world = World()
    world.breaks["ship"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *TWO_WORKS)
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.FAILED
        assert workflow.reason == "the agent of work ship broke: it broke"
        assert (works[1].status, works[1].agent_status) == (WorkStatus.FAILED, AgentStatus.ERROR)
        assert (await here.told(workflow_id))[-3:] == ["AgentError", "WorkStatusChanged", "WorkflowFailed"]
        assert await used_by(here.parts) == set()
        await resume_workflow(here.parts, workflow_id)
        assert await used_by(here.parts) == {workflow_id}
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        assert await used_by(here.parts) == set()


async def test_a_failed_query_is_sent_again(tmp_path: Path) -> None:
    world = World()
    world.fails["push"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, work("ship", "push"))
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        assert (await here.told(workflow_id))[3:] == [
            *FIRST_QUERY,
            "QueryFailed", "WorkStatusChanged", "TaskStarted", "QuerySent",
            *ANSWER, "WorkCompleted", "AgentStopped", "CheckpointCreated", "WorkflowCompleted",
        ]  # fmt: skip


@pytest.mark.parametrize(("on_failure", "end"), [("pause", "WorkflowPaused"), ("fail", "WorkflowFailed")])
async def test_spent_retries_are_for_a_person_to_decide(tmp_path: Path, on_failure: str, end: str) -> None:
    world = World()
    world.fails["push"] = 2
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, work("ship", "pull", "push"), on_failure=on_failure)
        workflow, works = await here.read(workflow_id)
        assert workflow.status is (WorkflowStatus.PAUSED if on_failure == "pause" else WorkflowStatus.FAILED)
        assert workflow.reason == "task push of work ship failed after 2 tries: it said no"
        assert works[0].status is WorkStatus.FAILED
        assert (await here.told(workflow_id))[-3:] == ["QueryFailed", "WorkStatusChanged", end]
        before = await last_number(here, workflow_id)
        await resume_workflow(here.parts, workflow_id, retry=True)  # in place: what is done stays
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert here.world.resets == []
        assert (works[0].attempt, [task.attempt for task in works[0].tasks]) == (2, [1, 3])
        assert (await here.told(workflow_id, before))[:6] == [
            "WorkflowResumed", "WorkStarted", "TaskStarted", "QuerySent", "AgentStarted", "WorkStatusChanged",
        ]  # fmt: skip


async def test_a_report_that_fails_is_asked_for_again_and_nothing_else(tmp_path: Path) -> None:
    world = World()
    world.report_fails["check"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, work("build", REPORTED))
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        told = await here.told(workflow_id)
        assert told[told.index("ReportFailed") :][:4] == [
            "ReportFailed", "WorkStatusChanged", "ReportGenerationStarted", "ReportGenerated",
        ]  # fmt: skip
        assert told.count("QuerySent") == 1


@pytest.mark.parametrize("query", [None, "do it otherwise"])
async def test_in_place_only_the_report_that_is_missing_is_asked_for(tmp_path: Path, query: str | None) -> None:
    world = World()
    world.report_fails["check"] = 2
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, work("build", REPORTED))
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.PAUSED
        if query is not None:  # then the whole task is done again
            await modify_workflow(here.parts, workflow_id, [UpdateTask(works[0].tasks[0].id, {"query": query})])
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert works[0].tasks[0].response == f"answer to {query or 'check it'}"
        assert (await here.told(workflow_id)).count("QuerySent") == (1 if query is None else 2)


async def test_a_query_that_was_answered_needs_no_answer_when_its_report_is_left_out(tmp_path: Path) -> None:
    world = World()
    world.report_fails["check"] = 2
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, work("build", REPORTED))
        _, works = await here.read(workflow_id)
        await modify_workflow(here.parts, workflow_id, [UpdateTask(works[0].tasks[0].id, {"outline": ()})])
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        assert (await here.told(workflow_id)).count("QuerySent") == 1


async def test_a_checkpoint_that_cannot_be_made_pauses_and_is_made_when_it_goes_on_in_place(tmp_path: Path) -> None:
    world = World()
    world.refuses["commit"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *TWO_WORKS)
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.PAUSED
        assert workflow.reason == "what work build left could not be committed: commit does not work today"
        assert (works[0].status, works[0].error) == (WorkStatus.FAILED, workflow.reason)
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [(part.status, part.attempt) for part in works] == [(WorkStatus.COMPLETED, 1)] * 2
        assert set(here.world.sent.values()) == {1}


async def test_a_work_whose_checkpoint_could_not_be_made_can_be_changed(tmp_path: Path) -> None:
    world = World()
    world.refuses["commit"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *TWO_WORKS)
        _, works = await here.read(workflow_id)
        tidy = AddTask(works[0].id, TaskDefinition("tidy", "remove the big files"))
        await modify_workflow(here.parts, workflow_id, [tidy])
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [(task.name, task.attempt) for task in works[0].tasks] == [("plan", 1), ("check", 1), ("tidy", 1)]


@pytest.mark.parametrize("what", ["start", "send"])
async def test_an_agent_that_cannot_be_reached_fails_what_it_was_asked_for(tmp_path: Path, what: str) -> None:
    world = World()
    world.refuses[what] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, work("ship", "push"))
        workflow, _ = await here.read(workflow_id)
        if what == "start":
            assert workflow.status is WorkflowStatus.FAILED
            assert workflow.reason == "work ship could not begin: start does not work today"
            assert here.world.sent == {}, "nothing was asked of it"
        else:
            assert workflow.status is WorkflowStatus.COMPLETED  # the query was sent again
            assert "QueryFailed" in await here.told(workflow_id)


# ── beyond the plain sequence ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_workflow_pauses_for_review_after_a_chosen_work(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await started(here, work("plan", "a", pause_after=True), work("build", "b"))
        workflow, works = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "review after plan")
        assert [part.status for part in works] == [WorkStatus.COMPLETED, WorkStatus.PENDING]
        assert (await here.told(workflow_id))[-2:] == ["CheckpointCreated", "WorkflowPaused"]
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        assert here.world.resets == []


PARALLEL = (
    work("plan", "a"),
    work("api", "b", after=("plan",)),
    work("docs", "c", after=("plan",)),
    work("join", "d", after=("api", "docs"), merge=True),
)


async def test_the_last_work_is_reviewed_too(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await started(here, work("build", "plan"), work("ship", "push", pause_after=True))
        workflow, works = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.PAUSED, "review after ship")
        assert [part.status for part in works] == [WorkStatus.COMPLETED] * 2
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [part.attempt for part in works] == [1, 1]


async def test_works_that_wait_for_the_same_one_run_side_by_side_in_trees_of_their_own(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silences={"b", "c"})) as here:
        workflow_id = await started(here, *PARALLEL)
        _, works = await here.read(workflow_id)
        assert [part.status for part in works] == [
            WorkStatus.COMPLETED, WorkStatus.RUNNING, WorkStatus.RUNNING, WorkStatus.PENDING,
        ]  # fmt: skip
        async with here.parts.store.transaction() as tx:
            trees = await tx.work_trees.of_workflow(workflow_id)
            (planned,) = await tx.checkpoints.of_workflow(workflow_id)
        own = [tree for tree in trees if tree.work_id is not None]
        assert {tree.work_id for tree in own} == {works[1].id, works[2].id}
        assert {here.world.bases[tree.id] for tree in own} == {planned.hashes["git-0"]}
        for part in works[1:3]:
            await here.agents.answer(part, part.tasks[0])
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        async with here.parts.store.transaction() as tx:
            points = {point.work_id: point for point in await tx.checkpoints.of_workflow(workflow_id)}
        (main,) = [tree for tree in trees if tree.work_id is None]
        expected = tuple(points[part.id].hashes["git-0"] for part in works[1:3])
        assert here.world.merges == [(main.id, expected)]


async def test_a_merge_that_does_not_go_fails_the_work_that_asked_for_it(tmp_path: Path) -> None:
    world = World()
    world.refuses["merge"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *PARALLEL)
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.FAILED
        assert works[3].status is WorkStatus.FAILED
        assert "merge does not work today" in (workflow.reason or "")
        assert {work_id for work_id, *_ in here.world.sent} == {
            part.id for part in works[:3]
        }  # nobody was asked to go on
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_work_that_merged_and_broke_goes_on_in_place_and_merges_nothing_twice(tmp_path: Path) -> None:
    world = World()
    world.breaks["join"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *PARALLEL)
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.FAILED
        assert here.world.open_work
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        workflow, _ = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        assert len(here.world.merges) == 1
        assert not here.world.open_work


async def test_a_failure_stops_what_runs_beside_it(tmp_path: Path) -> None:
    world = World(silences={"c"})
    world.breaks["api"] = 1
    async with house(tmp_path / "w.db", world) as here:
        workflow_id = await started(here, *PARALLEL)
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.FAILED
        assert [part.status for part in works[1:3]] == [WorkStatus.FAILED, WorkStatus.PAUSED]
        assert works[2].agent_status is AgentStatus.STOPPED
        assert works[2].id not in world.alive
        world.silences.clear()
        await resume_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
        async with here.parts.store.transaction() as tx:
            trees = await tx.work_trees.of_workflow(workflow_id)
        released = [tree.id for tree in trees if tree.status is WorkTreeStatus.RELEASED]
        assert len(released) == 2  # those of the works that began anew
        assert not world.trees.keys() & set(released)
