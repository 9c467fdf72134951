"""What there is in the workflow layer, and how it may change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.workflow.domain.plan import WorkDependencies
from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, GitRef, McpServerRef, WorkTree
from kingdom.workflow.domain.statuses import (
    AgentStatus,
    QueryStatus,
    ReportStatus,
    TaskStatus,
    WorkflowStatus,
    WorkStatus,
)
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow, WorkflowTemplate, check_plan
from kingdom.workflow.errors import IllegalTransition, InvalidPlan, NotFound, NotModifiable, StillInUse

NOW = datetime(2026, 2, 7, 10, tzinfo=UTC)


def task(**more: object) -> Task:
    return Task(**{"id": "t", "order": 0, "name": "look", "query": "look around", **more})  # type: ignore[arg-type]


def work(*tasks: Task) -> Work:
    return Work("w", "wf", 0, "first", list(tasks) or [task()])


def workflow(**more: object) -> Workflow:
    return Workflow(**{"id": "wf", "name": "fix it", "created_at": NOW, **more})  # type: ignore[arg-type]


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_without_an_outline_is_done_when_its_query_is_answered() -> None:
    step = task()
    step.send()
    step.process()
    step.respond("done")
    step.complete()
    assert (step.status, step.query_status, step.report_status) == (
        TaskStatus.COMPLETED,
        QueryStatus.RESPONDED,
        ReportStatus.NOT_REQUIRED,
    )


def test_a_task_with_an_outline_is_done_when_its_report_is_there() -> None:
    step = task(outline=("Findings",))
    step.send()
    step.respond("done")
    with pytest.raises(IllegalTransition, match="report PENDING"):
        step.complete()
    step.start_report("r")
    step.finish_report()
    step.complete()
    assert step.status is TaskStatus.COMPLETED


def test_a_report_cannot_begin_before_the_answer() -> None:
    step = task(outline=("Findings",))
    step.send()
    with pytest.raises(IllegalTransition, match="before the answer"):
        step.start_report("r")


def test_a_failed_query_is_tried_again_as_another_attempt_until_its_retries_are_spent() -> None:
    step = task(retries=1)
    step.send()
    step.fail_query("no answer")
    assert (step.status, step.error) == (TaskStatus.FAILED, "no answer")
    assert step.retry()
    assert (step.status, step.attempt, step.tries, step.error) == (TaskStatus.PENDING, 2, 1, None)
    step.send()
    step.fail_query("no answer")
    assert not step.retry()
    assert step.status is TaskStatus.FAILED


def test_a_cancelled_task_keeps_what_was_answered_and_cannot_come_back() -> None:
    step = task(outline=("Findings",))
    step.send()
    step.respond("done")
    step.cancel()
    step.cancel()
    assert (step.status, step.query_status, step.report_status) == (
        TaskStatus.CANCELLED,
        QueryStatus.RESPONDED,
        ReportStatus.CANCELLED,
    )
    with pytest.raises(IllegalTransition, match="CANCELLED and cannot become PENDING"):
        step.reset()


# ── works ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_work_is_done_when_its_last_task_is() -> None:
    part = work(task(id="a"), task(id="b", order=1))
    part.start()
    part.agent_started()
    for step in list(part.tasks):
        assert part.current_task is step
        with pytest.raises(IllegalTransition, match="with task"):
            part.complete()
        step.send()
        step.respond("yes")
        step.complete()
    part.complete()
    assert (part.status, part.current_task) == (WorkStatus.COMPLETED, None)


def test_an_agent_that_breaks_takes_its_work_with_it() -> None:
    part = work()
    part.start()
    part.agent_failed("killed")
    assert (part.status, part.agent_status, part.error) == (WorkStatus.FAILED, AgentStatus.ERROR, "killed")


def test_a_work_that_is_reset_is_another_attempt_with_a_conversation_of_its_own() -> None:
    part = work()
    part.start()
    part.session_id = "s"
    part.agent_failed("killed")
    part.reset()
    assert (part.status, part.agent_status, part.attempt, part.session_id, part.error) == (
        WorkStatus.PENDING,
        AgentStatus.IDLE,
        2,
        None,
        None,
    )
    assert part.tasks[0].attempt == 2


def test_cancelling_a_work_cancels_what_is_not_done() -> None:
    part = work(task(id="a"), task(id="b"))
    part.start()
    part.tasks[0].send()
    part.tasks[0].respond("yes")
    part.tasks[0].complete()
    part.cancel()
    assert [step.status for step in part.tasks] == [TaskStatus.COMPLETED, TaskStatus.CANCELLED]


def test_a_task_of_another_work_is_not_found() -> None:
    with pytest.raises(NotFound, match="work w has no task x"):
        work().task("x")


# ── workflows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_workflow_from_beginning_to_end() -> None:
    whole = workflow()
    for step in (whole.prepare, whole.ready, whole.start, whole.pause, whole.resume, whole.resumed, whole.complete):
        step()
    assert whole.is_over
    with pytest.raises(IllegalTransition, match="cannot be cancelled: it is done"):
        whole.cancel()


def test_a_failed_workflow_can_be_resumed_and_says_why_it_failed_until_then() -> None:
    whole = workflow(status=WorkflowStatus.RUNNING)
    whole.fail("the agent broke")
    assert whole.reason == "the agent broke"
    whole.resume()
    assert (whole.status, whole.reason) == (WorkflowStatus.RESUMING, None)


@pytest.mark.parametrize("status", ["PREPARING", "RUNNING", "RESUMING", "CANCELLED"])
def test_the_plan_stays_as_it_is_while_somebody_works_on_it_or_after_the_end(status: str) -> None:
    with pytest.raises(NotModifiable, match=status):
        workflow(status=WorkflowStatus(status)).change_git_refs([GitRef("g")])


def test_changed_references_are_told_as_added_and_removed() -> None:
    whole = workflow(git_refs=(GitRef("a"), GitRef("b")), mcp_server_refs=(McpServerRef("m"),))
    assert whole.change_git_refs([GitRef("b", "main"), GitRef("c")]) == (["c"], ["a"])
    assert whole.change_mcp_server_refs([]) == ([], ["m"])


@given(st.lists(st.sampled_from(["prepare", "ready", "start", "pause", "resume", "resumed", "complete", "cancel"])))
def test_no_sequence_of_calls_leaves_a_cancelled_workflow_and_a_completed_one_only_goes_on(names: list[str]) -> None:
    whole = workflow()
    for name in names:
        change: Callable[[], None] = getattr(whole, name)
        before = whole.status
        try:
            change()
        except IllegalTransition:
            assert whole.status is before
        else:
            assert before is not WorkflowStatus.CANCELLED
            assert before is not WorkflowStatus.COMPLETED or name == "resume"


# ── what workflows draw on ────────────────────────────────────────────────────────────────────────────────────────


def test_a_use_is_counted_once_and_released_once() -> None:
    git = Git("g", "backend", url="https://example.org/backend.git")
    assert git.add_workflow("wf")
    assert not git.add_workflow("wf")
    with pytest.raises(StillInUse, match=r"backend \(g\) is used by 1 workflows, such as wf"):
        git.check_unused()
    assert git.remove_workflow("wf")
    assert not git.remove_workflow("wf")
    git.check_unused()


def test_a_template_forgets_what_was_deleted() -> None:
    refs = (McpServerRef("m"), McpServerRef("n"))
    definition = WorkDefinition("one", (TaskDefinition("t", "q"),), mcp_server_refs=refs)
    plan = WorkflowTemplate("tpl", "fix", (definition,), git_refs=(GitRef("g"),), mcp_server_refs=refs)
    assert plan.remove_git("g")
    assert not plan.remove_git("g")
    assert plan.remove_mcp_server("m")
    assert not plan.remove_mcp_server("m")
    assert (plan.git_refs, plan.mcp_server_refs, plan.works[0].mcp_server_refs) == ((), refs[1:], refs[1:])


@pytest.mark.parametrize(
    ("works", "why"),
    [
        ([], "at least one work"),
        ([("a", ()), ("a", ())], "two works are called 'a'"),
        ([("a", ("b",))], "'a' is after 'b', and there is none"),
        ([("a", ("c",)), ("b", ()), ("c", ("a",))], "wait for each other: a, b, c"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(works: list[tuple[str, tuple[str, ...]]], why: str) -> None:
    with pytest.raises(InvalidPlan, match=why):
        check_plan(works)


def test_a_work_without_a_task_is_refused() -> None:
    with pytest.raises(InvalidPlan, match="'one' has no task"):
        WorkflowTemplate("tpl", "fix", (WorkDefinition("one", ()),))


# ── on disk ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worktree_that_failed_can_be_tried_again_and_a_released_one_cannot() -> None:
    tree = WorkTree("wt", "wf", "g")
    tree.fail("no such branch")
    tree.retry_creation()
    tree.ready("/somewhere", "kingdom/wf")
    assert tree.error is None
    tree.mark_for_release()
    tree.reclaim()
    tree.mark_for_release()
    tree.released()
    with pytest.raises(IllegalTransition, match="RELEASED and cannot become CREATING"):
        tree.reclaim()


def test_works_after_the_start_wait_for_nobody_and_run_beside_each_other() -> None:
    works = [
        Work("a", "wf", 0, "left", [], after=("start",)),
        Work("b", "wf", 1, "right", [], after=("start",)),
        Work("c", "wf", 2, "both", []),
    ]
    plan = WorkDependencies(works)
    assert [work.id for work in plan.startable([])] == ["a", "b"]
    assert [plan.apart(work) for work in works] == [True, True, False]
    assert [work.id for work in plan.waits_for(works[2])] == ["a", "b"]
    check_plan((work.name, work.after) for work in works)


def test_what_may_start_is_found_without_comparing_each_work_with_all_others() -> None:
    class Done(list[str]):
        asked = 0

        def __contains__(self, item: object) -> bool:
            self.asked += 1
            return super().__contains__(item)

    works = [Work(f"work-{number}", "wf", number, f"step {number}", []) for number in range(200)]
    done = Done(work.id for work in works[:100])
    for work in works[:100]:
        work.status = WorkStatus.COMPLETED
    assert WorkDependencies(works).startable(done) == [works[100]]
    assert done.asked <= len(works)


def test_a_work_called_start_is_one_that_can_be_waited_for() -> None:
    plan = WorkDependencies([Work("a", "wf", 0, "start", []), Work("b", "wf", 1, "next", [], after=("start",))])
    assert [work.id for work in plan.startable([])] == ["a"]
    check_plan([("start", ()), ("next", ("start",))])
    with pytest.raises(InvalidPlan, match="wait for each other"):
        check_plan([("start", ("start",))])


def test_a_checkpoint_is_an_intent_until_its_commits_are_there() -> None:
    point = Checkpoint("cp", "wf", "w", 0, 1, NOW)
    assert not point.complete
    point.finish({"g": Committed("a" * 40, "b" * 40)}, 1)
    point.invalidate()
    assert (point.complete, point.valid) == (True, False)
    assert (point.hashes, point.trees) == ({"g": "a" * 40}, {"g": "b" * 40})


def test_a_report_that_failed_can_be_written_again() -> None:
    report = Report("r", "wf", "w", "t", ("Findings",))
    report.start()
    report.fail("no section Findings")
    report.start()
    report.complete("reports/00-look.md")
    assert (report.status, report.file_path, report.error) == (ReportStatus.COMPLETED, "reports/00-look.md", None)
    report.reset()
    assert (report.status, report.file_path) == (ReportStatus.PENDING, None)
