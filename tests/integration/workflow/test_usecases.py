"""Repositories, MCP servers, templates, changes of the plan, forks and deletion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.plan import (
    AddTask,
    AddWork,
    Change,
    RemoveTask,
    RemoveWork,
    ReorderTasks,
    ReorderWorks,
    SetDetails,
    SetGitRefs,
    SetMcpServerRefs,
    UpdateTask,
    UpdateWork,
)
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkflowTemplate
from kingdom.workflow.errors import InvalidPlan, NameTaken, NotFound, NotModifiable, StillInUse
from kingdom.workflow.store import ConcurrentChange
from kingdom.workflow.usecases.catalog import (
    create_git,
    create_template_from_workflow,
    create_workflow_template,
    delete_git,
    delete_workflow_template,
    register_mcp_server,
    unregister_mcp_server,
    update_workflow_template,
)
from kingdom.workflow.usecases.lifecycle import (
    cancel_workflow,
    delete_workflow,
    pause_workflow,
    resume_workflow,
    start_workflow,
)
from kingdom.workflow.usecases.workflows import create_workflow, fork_workflow, modify_workflow
from tests.support.workflow_fakes import House, World, house
from tests.support.workflow_plans import REPORTED, created, started, work


async def template_of(parts: WorkflowContext, template_id: str) -> WorkflowTemplate:
    async with parts.store.transaction() as tx:
        return await tx.templates.get(template_id)


# ── repositories, MCP servers, templates ──────────────────────────────────────────────────────────────────────────────


async def test_what_is_deleted_disappears_from_every_template(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        git_id = await create_git(here.parts, "backend", "https://example.org/b.git")
        server_id = await register_mcp_server(here.parts, "docs", command=["docs", "--stdio"], env={"A": "${B}"})
        refs = (McpServerRef(server_id),)
        template = WorkflowTemplate(
            "tpl-1", "fix", (work("one", "a", mcp_server_refs=refs),), git_refs=(GitRef(git_id),), mcp_server_refs=refs
        )
        await create_workflow_template(here.parts, template)
        await delete_git(here.parts, git_id)
        await unregister_mcp_server(here.parts, server_id)
        await here.engine.idle()
        left = await template_of(here.parts, "tpl-1")
        assert (left.git_refs, left.mcp_server_refs, left.works[0].mcp_server_refs) == ((), (), ())
        assert [event.type for event in await here.parts.store.events(None, 0, 10)] == [
            "GitCreated", "McpServerRegistered", "WorkflowTemplateCreated", "GitDeleted", "McpServerUnregistered",
        ]  # fmt: skip


async def test_a_name_stands_for_one_repository_and_for_one_mcp_server(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        await create_git(here.parts, "app", "https://example.org/a.git")
        await register_mcp_server(here.parts, "app", command=["app"])  # another kind of thing
        with pytest.raises(NameTaken, match="taken by another repository"):
            await create_git(here.parts, "app", "https://example.org/b.git")
        with pytest.raises(NameTaken, match="taken by another MCP server"):
            await register_mcp_server(here.parts, "app", url="https://example.org/mcp")


async def test_the_clone_of_a_deleted_repository_goes_with_the_last_one_of_its_url(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        first = await create_git(here.parts, "app", "https://example.org/a.git")
        second = await create_git(here.parts, "same", "https://example.org/a.git")
        await delete_git(here.parts, first)
        assert here.world.discarded == []
        await delete_git(here.parts, second)
        assert here.world.discarded == ["same"]


async def test_a_template_is_kept_changed_and_forgotten(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        template = WorkflowTemplate("tpl-1", "fix", (work("one", "a"),))
        await create_workflow_template(here.parts, template)
        mine, theirs = await template_of(here.parts, "tpl-1"), await template_of(here.parts, "tpl-1")
        mine.description = "better"
        await update_workflow_template(here.parts, mine)
        with pytest.raises(ConcurrentChange):
            await update_workflow_template(here.parts, theirs)
        assert (await template_of(here.parts, "tpl-1")).description == "better"
        await delete_workflow_template(here.parts, "tpl-1")
        with pytest.raises(NotFound, match="there is no template tpl-1"):
            await create_workflow(here.parts, "tpl-1")
        bad = WorkflowTemplate("tpl-2", "fix", (work("one", "a"),), git_refs=(GitRef("git-9"),))
        with pytest.raises(NotFound, match="there is no repository git-9"):
            await create_workflow_template(here.parts, bad)


async def test_a_template_can_be_made_from_a_workflow_as_it_became(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        plan = work("build", "a", REPORTED, pause_after=True), work("ship", "b", engine="codex", model="m")
        workflow_id = await created(here.parts, *plan)
        await modify_workflow(here.parts, workflow_id, [AddWork(work("tell", "c"))])
        template_id = await create_template_from_workflow(here.parts, workflow_id, "ours")
        made = await template_of(here.parts, template_id)
        assert (made.name, made.works, made.git_refs) == (
            "ours",
            (*plan, work("tell", "c")),
            (GitRef("git-0", "main"),),
        )


async def test_an_mcp_server_is_in_use_while_a_work_may_need_it(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silent=True)) as here:
        server_id = await register_mcp_server(here.parts, "docs", url="https://example.org/mcp")
        plan = work("one", "a", mcp_server_refs=(McpServerRef(server_id),))
        workflow_id = await started(here, plan)
        with pytest.raises(StillInUse, match="docs"):
            await unregister_mcp_server(here.parts, server_id)
        await pause_workflow(here.parts, workflow_id)
        _, works = await here.read(workflow_id)
        await modify_workflow(here.parts, workflow_id, [UpdateWork(works[0].id, {"mcp_server_refs": []})])
        await unregister_mcp_server(here.parts, server_id)


# ── changes of the plan ───────────────────────────────────────────────────────────────────────────────────────────────


async def in_the_middle(here: House) -> tuple[str, list[Work]]:
    """A workflow paused in the second of three works, at the second of its three tasks."""
    here.world.silences = {"b2"}
    workflow_id = await started(here, work("a", "a1"), work("b", "b1", "b2", "b3"), work("c", "c1"))
    await pause_workflow(here.parts, workflow_id)
    await here.engine.idle()
    here.world.silences = set()
    _, works = await here.read(workflow_id)
    return workflow_id, works


async def shape(here: House, workflow_id: str) -> list[tuple[str, list[str]]]:
    _, works = await here.read(workflow_id)
    assert [part.sequence for part in works] == list(range(len(works)))
    assert all([task.order for task in part.tasks] == list(range(len(part.tasks))) for part in works)
    return [(part.name, [task.name for task in part.tasks]) for part in works]


async def test_what_is_not_done_can_be_changed_while_a_workflow_rests(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id, (_, b, c) = await in_the_middle(here)
        await modify_workflow(
            here.parts,
            workflow_id,
            [
                AddTask(b.id, TaskDefinition("b4", "four")),
                AddTask(b.id, TaskDefinition("b5", "five"), at=1),
                UpdateTask(b.tasks[1].id, {"query": "do it well", "outline": ["Why"], "retries": 3}),
                RemoveTask(b.tasks[2].id),
                AddWork(work("d", "d1")),
                UpdateWork(c.id, {"model": "large", "pause_after": False}),
            ],
        )
        assert await shape(here, workflow_id) == [
            ("a", ["a1"]), ("b", ["b1", "b5", "b2", "b4"]), ("c", ["c1"]), ("d", ["d1"]),
        ]  # fmt: skip
        _, works = await here.read(workflow_id)
        await modify_workflow(here.parts, workflow_id, [ReorderWorks((works[3].id, works[2].id))])
        await modify_workflow(here.parts, workflow_id, [RemoveWork(works[2].id)])
        assert await shape(here, workflow_id) == [("a", ["a1"]), ("b", ["b1", "b5", "b2", "b4"]), ("d", ["d1"])]
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert workflow.work_statuses.keys() == {part.id for part in works}
        assert works[1].tasks[2].response == "answer to do it well"
        assert len(here.world.reports) == 1


async def test_tasks_that_have_not_begun_can_be_put_in_another_order(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await created(here.parts, work("a", "one", "two", "three"))
        _, (a,) = await here.read(workflow_id)
        one, two, three = (task.id for task in a.tasks)
        await modify_workflow(here.parts, workflow_id, [ReorderTasks(a.id, (three, one, two))])
        assert await shape(here, workflow_id) == [("a", ["three", "one", "two"])]


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (lambda a, b, c: RemoveTask(b.tasks[0].id), NotModifiable, "task b1 .* is COMPLETED"),
        (lambda a, b, c: UpdateTask(a.tasks[0].id, {"query": "x"}), NotModifiable, "work a is COMPLETED"),
        (
            lambda a, b, c: AddTask(b.id, TaskDefinition("x", "x"), at=0),
            NotModifiable,
            "can be put at 1 to 3, not at 0",
        ),
        (lambda a, b, c: RemoveWork(b.id), NotModifiable, "work b has begun"),
        (lambda a, b, c: AddWork(work("x", "x"), at=1), NotModifiable, "at 2 to 3, not at 1"),
        (lambda a, b, c: ReorderWorks((b.id, c.id)), NotModifiable, "exactly those that have not begun"),
        (lambda a, b, c: ReorderTasks(b.id, ()), NotModifiable, "exactly those that have not begun"),
        (lambda a, b, c: UpdateWork(b.id, {"after": ["a"]}), NotModifiable, "its after cannot be changed"),
        (lambda a, b, c: UpdateWork(c.id, {"status": "COMPLETED"}), InvalidPlan, "no 'status' to change"),
        (lambda a, b, c: UpdateWork(c.id, {"name": "a"}), InvalidPlan, "two works are called 'a'"),
        (lambda a, b, c: RemoveTask(c.tasks[0].id), InvalidPlan, "work 'c' has no task"),
        (lambda a, b, c: UpdateWork("work-9", {}), NotFound, "has no work work-9"),
        (lambda a, b, c: RemoveTask("task-9"), NotFound, "has no task task-9"),
        (lambda a, b, c: SetGitRefs((GitRef("git-9"),)), NotFound, "no repository git-9"),
        (lambda a, b, c: SetMcpServerRefs((McpServerRef("mcp-9"),)), NotFound, "no MCP server mcp-9"),
    ],
)
async def test_what_is_done_or_does_not_go_together_cannot_be_changed(
    tmp_path: Path, change: object, error: type[Exception], why: str
) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id, works = await in_the_middle(here)
        before = await here.read(workflow_id)
        made: Sequence[Change] = [UpdateWork(works[2].id, {"model": "large"}), change(*works)]  # type: ignore[operator]
        with pytest.raises(error, match=why):
            await modify_workflow(here.parts, workflow_id, made)
        assert await here.read(workflow_id) == before  # all of it, or nothing


async def test_the_plan_of_a_workflow_that_runs_cannot_be_changed(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silent=True)) as here:
        workflow_id = await started(here, work("a", "a1"))
        with pytest.raises(NotModifiable, match=r"it is at work .RUNNING.; kingdom workflow pause"):
            await modify_workflow(here.parts, workflow_id, [AddWork(work("b", "b1"))])


async def test_repositories_can_be_exchanged_between_two_works(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        other = await create_git(here.parts, "frontend", "https://example.org/f.git")
        workflow_id = await started(here, work("a", "a1", pause_after=True), work("b", "b1"))
        change = SetGitRefs((GitRef(other, "main"),))
        await modify_workflow(here.parts, workflow_id, [change])
        await here.engine.idle()
        told = await here.told(workflow_id)
        assert told[-2:] == ["WorkTreePendingRelease", "WorkflowGitRefsUpdated"]
        workflow, _ = await here.read(workflow_id)
        assert workflow.work_tree_statuses == {"git-0": WorkTreeStatus.PENDING_RELEASE}
        assert len(here.world.trees) == 1  # the files stay until the workflow ends
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        async with here.parts.store.transaction() as tx:
            trees = {tree.git_id: tree for tree in await tx.work_trees.of_workflow(workflow_id)}
            assert [git.used_by for git in await tx.gits.list()] == [set(), set()]
        assert trees["git-0"].status is WorkTreeStatus.RELEASED
        assert here.world.trees.keys() == {trees[other].id}
        assert (await here.told(workflow_id))[-1] == "WorkTreeReleased"


async def test_another_base_is_refused_once_the_worktree_is_there(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await created(here.parts, work("a", "a1"))
        await modify_workflow(here.parts, workflow_id, [SetGitRefs((GitRef("git-0", "next"),))])
        await start_workflow(here.parts, workflow_id, prepare_only=True)
        assert list(here.world.bases.values()) == ["next"]
        with pytest.raises(NotModifiable, match="worktree of backend exists and started from next"):
            await modify_workflow(here.parts, workflow_id, [SetGitRefs((GitRef("git-0", "main"),))])


async def test_a_workflow_gets_another_name_and_description(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await created(here.parts, work("a", "a1"))
        await modify_workflow(here.parts, workflow_id, [SetDetails("blue", "Paint it.")])
        workflow, _ = await here.read(workflow_id)
        assert (workflow.name, workflow.description) == ("blue", "Paint it.")
        async with here.parts.store.reading() as tx:
            assert [found for found, _ in await tx.workflows.versions(search="blu")] == [workflow_id]
            assert await tx.workflows.versions(search="plan") == []


async def test_a_repository_that_comes_back_before_the_end_keeps_its_worktree(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await started(here, work("a", "a1", pause_after=True), work("b", "b1"))
        await modify_workflow(here.parts, workflow_id, [SetGitRefs(())])
        await modify_workflow(here.parts, workflow_id, [SetGitRefs((GitRef("git-0", "main"),))])
        await resume_workflow(here.parts, workflow_id, retry=True)
        await here.engine.idle()
        workflow, _ = await here.read(workflow_id)
        assert workflow.work_tree_statuses == {"git-0": WorkTreeStatus.READY}
        assert len(here.world.trees) == 1


async def test_a_workflow_that_is_ready_prepares_the_repositories_that_come_in(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        other = await create_git(here.parts, "frontend", "https://example.org/f.git")
        workflow_id = await created(here.parts, work("a", "a1"))
        await start_workflow(here.parts, workflow_id, prepare_only=True)
        await modify_workflow(here.parts,
            workflow_id, [SetGitRefs((GitRef("git-0", "main"), GitRef(other)))]
        )  # fmt: skip
        await here.engine.idle()
        workflow, _ = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.READY
        assert set(workflow.work_tree_statuses.values()) == {WorkTreeStatus.READY}
        assert len(here.world.trees) == 2
        await start_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


# ── forks and deletion ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_fork_begins_where_the_first_one_stood_and_leaves_it_alone(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        first = await started(here, work("a", REPORTED), work("b", "b1"), work("c", "c1"))
        before = await here.read(first)
        async with here.parts.store.transaction() as tx:
            points = sorted(await tx.checkpoints.of_workflow(first), key=lambda point: point.id)
        fork_id = await fork_workflow(here.parts, points[0].id, name="another way")
        fork, works = await here.read(fork_id)
        assert (fork.status, fork.forked_from) == (WorkflowStatus.CREATED, points[0].id)
        assert [part.status for part in works] == [WorkStatus.COMPLETED, WorkStatus.PENDING, WorkStatus.PENDING]
        await start_workflow(here.parts, fork_id)
        await here.engine.idle()
        fork, works = await here.read(fork_id)
        assert fork.status is WorkflowStatus.COMPLETED
        assert await here.read(first) == before
        async with here.parts.store.transaction() as tx:
            (tree,) = await tx.work_trees.of_workflow(fork_id)
            (report,) = await tx.reports.of_workflow(fork_id)
        assert here.world.bases[tree.id] == points[0].hashes["git-0"]
        assert report.file_path in here.world.reports
        assert report.task_id == works[0].tasks[0].id
        sent = {work_id for work_id, _, _ in here.world.sent}
        assert works[0].id not in sent
        assert {works[1].id, works[2].id} <= sent


async def test_a_fork_of_a_cancelled_workflow_does_the_rest_of_it(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silences={"b1"})) as here:
        first = await started(here, work("a", "a1"), work("b", "b1"))
        await cancel_workflow(here.parts, first)
        here.world.silences.clear()
        async with here.parts.store.transaction() as tx:
            (point,) = await tx.checkpoints.of_workflow(first)
        fork_id = await fork_workflow(here.parts, point.id)
        await start_workflow(here.parts, fork_id)
        await here.engine.idle()
        assert (await here.read(fork_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_fork_of_a_workflow_that_is_being_landed_waits_for_its_start(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        first = await started(here, work("a", "a1"), work("b", "b1"), land=LandPlan("push"))
        async with here.parts.store.transaction() as tx:
            workflow = await tx.workflows.get(first)
            workflow.landing = True
            await tx.workflows.save(workflow)
            point, _ = await tx.checkpoints.of_workflow(first)
        fork, _ = await here.read(await fork_workflow(here.parts, point.id))
        assert (fork.status, fork.is_active, fork.land) == (WorkflowStatus.CREATED, False, LandPlan("push"))


async def test_what_a_fork_does_begins_with_its_first_attempt(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await started(here, work("a", "x"), work("b", "y", pause_after=True), work("c", "z"))
        async with here.parts.store.transaction() as tx:
            first, _ = await tx.checkpoints.of_workflow(workflow_id)
        for _ in range(2):
            await resume_workflow(here.parts, workflow_id, checkpoint_id=first.id)
            await here.engine.idle()
        fork_id = await fork_workflow(here.parts, first.id)
        _, works = await here.read(fork_id)
        assert [(part.attempt, part.tasks[0].attempt) for part in works] == [(1, 1)] * 3


async def test_a_deleted_workflow_leaves_nothing_but_its_events(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silences={"b1"})) as here:
        workflow_id = await started(here, work("a", REPORTED), work("b", "b1"))
        with pytest.raises(
            NotModifiable, match=r"be deleted now: it is at work \(RUNNING\); .*kingdom workflow cancel"
        ):
            await delete_workflow(here.parts, workflow_id)
        await pause_workflow(here.parts, workflow_id)
        await delete_workflow(here.parts, workflow_id)
        await here.engine.idle()
        assert (here.world.trees, here.world.folders, here.world.reports) == ({}, set(), set())
        assert (await here.told(workflow_id))[-1] == "WorkflowDeleted"
        async with here.parts.store.transaction() as tx:
            assert (await tx.gits.get("git-0")).used_by == set()
            for rows in (tx.works, tx.reports, tx.checkpoints, tx.work_trees, tx.work_spaces):
                assert await rows.of_workflow(workflow_id) == []
            with pytest.raises(NotFound):
                await tx.workflows.get(workflow_id)
