"""The flows of a workflow, with the events in exactly the specified order."""

from __future__ import annotations

from pathlib import Path

from kingdom.workflow.domain.sources import Git, GitRef
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.domain.template import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.parts import Parts
from kingdom.workflow.usecases.create_workflow import CreateWorkflow
from kingdom.workflow.usecases.start_workflow import StartWorkflow
from tests.support.workflow_fakes import house, work

REPORTED = TaskDefinition("check", "check it", ("Findings",))


async def created(parts: Parts, *works: WorkDefinition, gits: int = 1) -> str:
    refs = tuple(GitRef(f"git-{number}", "main") for number in range(gits))
    async with parts.store.transaction() as tx:
        for ref in refs:
            if await tx.gits.find(ref.git_id) is None:
                await tx.gits.save(Git(ref.git_id, "backend", url="https://example.org/b.git"))
        template = WorkflowTemplate(parts.ids.new("tpl"), "plan", works, git_refs=refs)
        await tx.templates.save(template)
    return await CreateWorkflow(parts).execute(template.id)


async def test_a_workflow_from_its_start_to_its_end(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db") as here:
        workflow_id = await created(here.parts, work("build", "plan", REPORTED), work("ship", "push"))
        await StartWorkflow(here.parts).execute(workflow_id)
        await here.engine.idle()
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [part.status for part in works] == [WorkStatus.COMPLETED] * 2
        assert set(workflow.work_statuses.values()) == {WorkStatus.COMPLETED}
        assert await here.told(workflow_id) == [
            "WorkflowCreated",
            "WorkTreeCreated",
            "WorkflowStarted",
            "WorkSpaceCreated", "WorkStarted", "AgentStarted",
            "TaskStarted", "QuerySent", "WorkStatusChanged",
            "QueryResponded", "TaskCompleted", "WorkStatusChanged",
            "TaskStarted", "QuerySent",
            "QueryResponded", "ReportGenerationStarted",
            "ReportGenerated", "TaskCompleted", "WorkStatusChanged", "WorkCompleted",
            "CheckpointCreated",
            "WorkSpaceCreated", "WorkStarted", "AgentStarted",
            "TaskStarted", "QuerySent", "WorkStatusChanged",
            "QueryResponded", "TaskCompleted", "WorkStatusChanged", "WorkCompleted",
            "CheckpointCreated",
            "WorkflowCompleted",
        ]  # fmt: skip
        assert set(here.world.sent.values()) == {1}
        async with here.parts.store.transaction() as tx:
            assert (await tx.gits.get("git-0")).used_by == set()
