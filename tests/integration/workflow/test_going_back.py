"""Going back to every checkpoint of a workflow, on a real repository."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from kingdom.agents.engine import Examined
from kingdom.agents.port import Began, Finished, OnEvent, Order
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.resources import Checkpoint
from kingdom.workflow.domain.statuses import ReportStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.domain.work import Report, Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow
from kingdom.workflow.usecases.lifecycle import pause_workflow, resume_workflow, start_workflow
from tests.integration.workflow.test_with_agents import create, find, running
from tests.support.repositories import plain_git


class Writer:
    """An agent that adds to the repository and reports, while it is let; else it sits there."""

    name = "writer"

    def __init__(self) -> None:
        self.let = True
        self.sitting = asyncio.Event()

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        on_event(Began("session", "model"))
        if not self.let:
            self.sitting.set()
            await asyncio.Event().wait()
        name = order.labels["work"]
        if order.labels["task_type"].endswith("/report"):
            return Finished(ok=True, text=f"## Findings\n\nBy {name}.\n")
        (order.cwd / f"{name}.txt").write_text(f"{order.run_id}\n")
        with (order.cwd / "all.txt").open("a") as file:
            file.write(f"{name}\n")
        return Finished(ok=True, text="It is done.")

    async def examine(self) -> Examined:
        return Examined(ok=True)


def plan(count: int) -> list[WorkDefinition]:
    task = TaskDefinition("do", "Do it.", ("Findings",))
    names = [f"work-{number:02}" for number in range(1, count + 1)]
    works = [WorkDefinition(name, (task,), "writer", pause_after=name == names[-1]) for name in names]
    return [*works, WorkDefinition("end", (TaskDefinition("do", "Do it."),), "writer")]


class Scene:
    """The workflow, and where its files are."""

    def __init__(self, parts: WorkflowContext, workflow_id: str) -> None:
        self.parts = parts
        self.id = workflow_id

    async def rests(self) -> Workflow:
        """Wait until it does not run; a pause is told to the interface only, so it is looked for."""
        async with asyncio.timeout(60):
            while (workflow := await find(self.parts, self.id)).status is WorkflowStatus.RUNNING:
                await asyncio.sleep(0.01)
        return workflow

    async def read(self) -> tuple[list[Work], list[Report], list[Checkpoint]]:
        async with self.parts.store.transaction() as tx:
            points = await tx.checkpoints.of_workflow(self.id)
            (tree,) = await tx.work_trees.of_workflow(self.id)
            self.tree = Path(str(tree.path))
            works, reports = await tx.works.of_workflow(self.id), await tx.reports.of_workflow(self.id)
        order = {work.id: work.sequence for work in works}
        return works, sorted(reports, key=lambda report: order[report.work_id]), [one for one in points if one.valid]

    def files(self) -> str:
        """The tree of what the worktree has, whatever git thinks of it."""
        assert plain_git(self.tree, "status", "--porcelain", "--ignored") == ""
        return plain_git(self.tree, "rev-parse", "HEAD^{tree}")

    def rescued(self) -> dict[str, str]:
        """What is kept under rescue refs: the files of each."""
        refs = plain_git(self.tree, "for-each-ref", "--format=%(refname)", "refs/kingdom/rescue").split()
        return {ref: plain_git(self.tree, "ls-tree", "-r", "--name-only", ref) for ref in refs}


def reports_on_disk(reports: list[Report], paths: Mapping[str, str]) -> list[bool]:
    return [Path(paths[report.id]).exists() for report in reports]


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.walk)])
async def test_going_back_to_each_checkpoint_gives_exactly_its_files(tmp_path: Path, count: int) -> None:
    last = f"review after work-{count:02}"
    writer = Writer()
    async with running(tmp_path, {"writer": writer}) as parts:
        scene = Scene(parts, await create(parts, tmp_path, *plan(count)))
        await start_workflow(parts, scene.id)
        assert (await scene.rests()).reason == last
        _, reports, points = await scene.read()
        assert len({point.trees["git-1"] for point in points}) == count
        paths = {report.id: str(report.file_path) for report in reports}
        assert reports_on_disk(reports, paths) == [True] * count
        writer.let = False
        for number in range(count, 0, -1):
            await _go_back(scene, writer, points[number - 1], number, paths)
        writer.let = True
        await resume_workflow(parts, scene.id, checkpoint_id=points[0].id)
        assert (await scene.rests()).reason == last
        works, reports, points = await scene.read()
        assert (len(points), {work.status for work in works[:count]}) == (count, {WorkStatus.COMPLETED})
        assert all(Path(str(report.file_path)).exists() for report in reports)
        await resume_workflow(parts, scene.id)
        assert (await scene.rests()).status is WorkflowStatus.COMPLETED
        _, _, points = await scene.read()
        assert scene.files() == points[-1].trees["git-1"]


async def _go_back(scene: Scene, writer: Writer, point: Checkpoint, number: int, paths: Mapping[str, str]) -> None:
    """Leave something, go back to a checkpoint, and look at everything while the next agent sits there."""
    before = scene.rescued()
    (scene.tree / f"left-{number}.txt").write_text("nobody committed this\n")
    (scene.tree / "README").write_text("changed\n")
    tip = plain_git(scene.tree, "rev-parse", "HEAD")
    writer.sitting.clear()
    await resume_workflow(scene.parts, scene.id, checkpoint_id=point.id)
    await asyncio.wait_for(writer.sitting.wait(), 30)
    works, reports, points = await scene.read()
    assert plain_git(scene.tree, "rev-parse", "HEAD") == point.hashes["git-1"]
    assert scene.files() == point.trees["git-1"]
    done, later = works[:number], works[number:]
    assert {work.status for work in done} == {WorkStatus.COMPLETED}
    assert [work.status for work in later] == [WorkStatus.RUNNING] + [WorkStatus.PENDING] * (len(later) - 1)
    assert all(work.session_id is None for work in later)
    assert all(work.attempt > 1 for work in later[:-1]), "what is told of their former agents is known by it"
    assert [one.work_id for one in points] == [work.id for work in done]
    expected = [place <= number for place in range(1, len(paths) + 1)]
    assert [report.status is ReportStatus.COMPLETED for report in reports] == expected
    assert reports_on_disk(reports, paths) == expected
    kept = {ref: names for ref, names in scene.rescued().items() if ref not in before}
    assert any(f"left-{number}.txt" in names.split() for names in kept.values())
    refs = plain_git(scene.tree, "for-each-ref", "--contains", tip, "--format=%(refname)", "refs/kingdom")
    assert refs, "what was committed is held as well"
    await pause_workflow(scene.parts, scene.id)
