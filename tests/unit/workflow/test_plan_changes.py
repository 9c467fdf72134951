"""A plan edited as a whole: the changes found in it make the workflow's plan exactly that."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.workflow.domain.plan import (
    PlanEditor,
    RemoveWork,
    SetGitRefs,
    SetMcpServerRefs,
    UpdateWork,
    plan_of,
    work_from,
)
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow, WorkflowTemplate
from kingdom.workflow.errors import InvalidPlan, NotModifiable
from kingdom.workflow.templates import plan_changes

NUMBERS = itertools.count(1)


def task(name: str, query: str = "do it", retries: int = 1) -> TaskDefinition:
    return TaskDefinition(name, query, retries=retries)


def work(name: str, *tasks: TaskDefinition, model: str | None = None) -> WorkDefinition:
    return WorkDefinition(name, tasks or (task("do"),), model=model)


def plan(*works: WorkDefinition) -> WorkflowTemplate:
    return WorkflowTemplate("wf-1", "w", works)


def new_id(kind: str) -> str:
    return f"{kind}-{next(NUMBERS)}"


def begun(template: WorkflowTemplate) -> tuple[Workflow, list[Work]]:
    workflow = Workflow("wf-1", "w", datetime(2026, 1, 1, tzinfo=UTC))
    return workflow, [work_from(one, "wf-1", at, new_id) for at, one in enumerate(template.works)]


def words(before: WorkflowTemplate, after: WorkflowTemplate) -> list[str]:
    return [told for told, _ in plan_changes(*begun(before), after)]


def test_the_same_plan_is_no_change() -> None:
    assert words(plan(work("a"), work("b")), plan(work("a"), work("b"))) == []


def test_each_change_is_told_in_words() -> None:
    before = plan(work("a", task("x"), task("y")), work("b"), work("c"))
    after = plan(work("c"), work("a", task("y", "other", 3), task("z")), work("d"))
    assert words(before, after) == [
        "work b is removed",
        "work a: task x is removed",
        "work a: task y: another query, retries",
        "work a: task z is added",
        "works in another order: c, a",
        "work d is added",
    ]


def test_repositories_and_servers_are_set_as_a_whole() -> None:
    workflow, works = begun(plan(work("a")))
    wanted = replace(plan(work("a")), git_refs=(GitRef("git-1"),), mcp_server_refs=(McpServerRef("mcp-1"),))
    assert [change for _, change in plan_changes(workflow, works, wanted)] == [
        SetGitRefs((GitRef("git-1"),)),
        SetMcpServerRefs((McpServerRef("mcp-1"),)),
    ]


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_work_that_another_one_continues_stays_unless_that_changes_too(how: str) -> None:
    _, works = begun(plan(work("a"), work("b"), replace(work("c"), continues="a")))
    gone = RemoveWork(works[0].id) if how == "removed" else UpdateWork(works[0].id, {"name": "z"})
    with pytest.raises(InvalidPlan, match="there is no work 'a': "):
        PlanEditor([*works], "wf-1", new_id).apply([gone])
    PlanEditor([*works], "wf-1", new_id).apply([gone, UpdateWork(works[2].id, {"continues": "b"})])
    assert works[2].continues == "b"


def test_what_cannot_be_changed_is_refused() -> None:
    workflow, works = begun(plan(work("a"), work("b")))
    with pytest.raises(NotModifiable, match="on_failure"):
        plan_changes(workflow, works, replace(plan(work("a"), work("b")), on_failure="fail"))
    works[0].start()
    with pytest.raises(NotModifiable, match="stay in their order: a"):
        plan_changes(workflow, works, plan(work("b"), work("a")))


def test_a_task_that_has_begun_is_not_moved() -> None:
    workflow, works = begun(plan(work("a", task("x"), task("y"), task("z"))))
    works[0].start()
    works[0].tasks[0].send()
    works[0].pause()
    with pytest.raises(NotModifiable, match="tasks of work a that have begun stay first, in their order: x"):
        plan_changes(workflow, works, plan(work("a", task("y"), task("x"), task("z"))))
    told = [told for told, _ in plan_changes(workflow, works, plan(work("a", task("x"), task("z"), task("y"))))]
    assert told == ["work a: tasks in another order: x, z, y"]


PLANS = st.lists(
    st.builds(
        lambda name, tasks, model: work(name, *tasks, model=model),
        st.sampled_from("abcde"),
        st.lists(
            st.builds(task, st.sampled_from("vwxyz"), st.sampled_from(["do it", "do more"]), st.integers(0, 2)),
            min_size=1,
            max_size=5,
            unique_by=lambda one: one.name,
        ),
        st.sampled_from([None, "m"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda one: one.name,
).map(lambda works: plan(*works))


@given(PLANS, PLANS)
def test_the_changes_make_any_plan_into_any_other(before: WorkflowTemplate, after: WorkflowTemplate) -> None:
    workflow, works = begun(before)
    editor = PlanEditor(works, "wf-1", new_id)
    editor.apply(change for _, change in plan_changes(workflow, list(works), after))  # type: ignore[misc]
    assert plan_of(workflow, editor.works).works == after.works
