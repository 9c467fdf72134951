"""ModifyWorkflow: the plan of a workflow nobody works on is changed."""

from __future__ import annotations

from collections.abc import Sequence

from kingdom.workflow.domain.changes import Change, PlanEditor, SetGitRefs, SetMcpServerRefs
from kingdom.workflow.domain.events import (
    WorkflowGitRefsUpdated,
    WorkflowMcpServerRefsUpdated,
    WorkStatusChanged,
    WorkTreePendingRelease,
)
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.resource import WorkflowResourceService, server_ids

_USING = (WorkflowStatus.READY, WorkflowStatus.PAUSED)  # modifiable, and what it uses is registered


class ModifyWorkflow:
    """Change the plan of a workflow that is CREATED, READY, PAUSED or FAILED: what is not done yet."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._resources = WorkflowResourceService(parts)

    async def execute(self, workflow_id: str, changes: Sequence[Change]) -> None:
        """Make all changes, or none; raises :class:`NotModifiable`, :class:`InvalidPlan` or :class:`NotFound`."""
        async with self._parts.turns.of(workflow_id), self._parts.step() as step:
            workflow = await step.tx.workflows.get(workflow_id)
            workflow.check_modifiable()
            works = await step.tx.works.of_workflow(workflow_id)
            before = server_ids(workflow, works)
            plan = [item for item in changes if not isinstance(item, (SetGitRefs, SetMcpServerRefs))]
            editor = PlanEditor(works, workflow_id, self._parts.ids.new)
            editor.apply(plan)
            await self._save(step, workflow, editor)
            for change in changes:
                if isinstance(change, SetGitRefs):
                    await self._set_git_refs(step, workflow, change)
                elif isinstance(change, SetMcpServerRefs):
                    added, removed = workflow.change_mcp_server_refs(change.refs)
                    step.tell(workflow_id, WorkflowMcpServerRefsUpdated(workflow_id, added, removed))
            await self._change_uses(step, workflow, editor.works, before)
            await step.tx.workflows.save(workflow)

    async def _save(self, step: Step, workflow: Workflow, editor: PlanEditor) -> None:
        for work in editor.works:
            if work.id not in editor.touched:
                continue
            new = work.version == 0
            await step.tx.works.save(work)
            workflow.work_changed(work.id, work.status)
            if new:
                step.tell(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
        for work in editor.removed:
            workflow.work_statuses.pop(work.id, None)
            await step.tx.works.delete(work.id)

    async def _set_git_refs(self, step: Step, workflow: Workflow, change: SetGitRefs) -> None:
        for ref in change.refs:
            await step.tx.gits.get(ref.git_id)
        added, removed = workflow.change_git_refs(change.refs)
        for tree in await step.tx.work_trees.of_workflow(workflow.id):
            if tree.git_id in removed and tree.status not in (WorkTreeStatus.RELEASED, WorkTreeStatus.PENDING_RELEASE):
                tree.release_later()
                await step.tx.work_trees.save(tree)
                step.tell(workflow.id, WorkTreePendingRelease(tree.id, workflow.id, tree.git_id))
            elif tree.git_id in added and tree.status is WorkTreeStatus.PENDING_RELEASE:
                tree.take_back()
                await step.tx.work_trees.save(tree)
        step.tell(workflow.id, WorkflowGitRefsUpdated(workflow.id, added, removed))

    async def _change_uses(self, step: Step, workflow: Workflow, works: list[Work], before: list[str]) -> None:
        """MCP servers are free at once; a repository stays used until its worktree is released."""
        after = server_ids(workflow, works)
        for server_id in set(after) - set(before):
            await step.tx.mcp_servers.get(server_id)
        if workflow.status in _USING:
            await self._resources.register_uses(step.tx, workflow, works)
            gone = [server_id for server_id in before if server_id not in after]
            await self._resources.release(step.tx.mcp_servers, gone, workflow.id)
