"""Plans for tests of workflows."""

from __future__ import annotations

from typing import Any

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.resources import Git, GitRef
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.usecases.lifecycle import start_workflow
from kingdom.workflow.usecases.workflows import create_workflow
from tests.support.workflow_fakes import House

REPORTED = TaskDefinition("check", "check it", ("Findings",))


def work(name: str, *tasks: TaskDefinition | str, **more: Any) -> WorkDefinition:
    """A Work of a plan; a task is its name, or whole."""
    whole = tuple(task if isinstance(task, TaskDefinition) else TaskDefinition(task, f"do {task}") for task in tasks)
    return WorkDefinition(name, whole, **more)


async def created(parts: WorkflowContext, *works: WorkDefinition, gits: int = 1, **more: Any) -> str:
    """A workflow of these works, on so many repositories."""
    refs = tuple(GitRef(f"git-{number}", "main") for number in range(gits))
    async with parts.store.transaction() as tx:
        for ref in refs:
            if await tx.gits.find(ref.git_id) is None:
                await tx.gits.save(Git(ref.git_id, "backend", url="https://example.org/b.git"))
        template = WorkflowTemplate(parts.ids.new("tpl"), "plan", works, git_refs=refs, **more)
        await tx.templates.save(template)
    return await create_workflow(parts, template.id)


async def started(here: House, *works: WorkDefinition, gits: int = 1, **more: Any) -> str:
    """A workflow that has run as far as it goes."""
    workflow_id = await created(here.parts, *works, gits=gits, **more)
    await start_workflow(here.parts, workflow_id)
    await here.engine.idle()
    return workflow_id
