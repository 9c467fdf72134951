"""Create, fork and modify workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from kingdom.workflow.context import UnitOfWork, WorkflowContext
from kingdom.workflow.domain.events import (
    WorkflowCreated,
    WorkflowGitRefsUpdated,
    WorkflowMcpServerRefsUpdated,
    WorkStatusChanged,
    WorkTreePendingRelease,
)
from kingdom.workflow.domain.plan import Change, PlanEditor, SetGitRefs, SetMcpServerRefs, WorkDependencies, work_from
from kingdom.workflow.domain.resources import Checkpoint, GitRef, McpServerRef, WorkSpace
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Report, Work
from kingdom.workflow.domain.workflow import OnFailure, Workflow
from kingdom.workflow.errors import NotFound
from kingdom.workflow.usecases.resources import WorkflowResourceService, server_ids, space_id

# CreateWorkflow: a workflow with its works, from a template.


class CreateWorkflow:
    """Make a workflow; it starts with :class:`kingdom.workflow.usecases.lifecycle.StartWorkflow`."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(
        self,
        template_id: str,
        *,
        workflow_id: str | None = None,
        name: str | None = None,
        issue_key: str | None = None,
        description: str | None = None,
        variables: Mapping[str, object] | None = None,
        git_refs: Sequence[GitRef] | None = None,
        mcp_server_refs: Sequence[McpServerRef] | None = None,
        on_failure: OnFailure | None = None,
    ) -> str:
        """Make a workflow from a template, with what is given here instead of the template's; returns its id.

        Whoever must not make a second one brings its id along, made and written down before.
        """
        parts = self._parts
        async with parts.step() as step:
            template = await step.tx.templates.get(template_id)
            workflow = Workflow(
                workflow_id or parts.ids.new("wf"),
                name or template.name,
                parts.clock(),
                template.id,
                issue_key,
                template.description if description is None else description,
                template.git_refs if git_refs is None else tuple(git_refs),
                template.mcp_server_refs if mcp_server_refs is None else tuple(mcp_server_refs),
                dict(variables or {}),
                on_failure or template.on_failure,
            )
            for ref in workflow.git_refs:
                await step.tx.gits.get(ref.git_id)
            for sequence, definition in enumerate(template.works):
                work = work_from(definition, workflow.id, sequence, parts.ids.new)
                workflow.work_changed(work.id, work.status)
                await step.tx.works.save(work)
            await step.tx.workflows.save(workflow)
            step.tell(workflow.id, WorkflowCreated(workflow.id))
        return workflow.id


# ForkWorkflow: a second workflow, on branches of its own, from a checkpoint of the first.


class ForkWorkflow:
    """Make a workflow that begins where another one stood."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    async def execute(self, checkpoint_id: str, *, name: str | None = None) -> str:
        """Fork a workflow from one of its checkpoints, valid or not; returns the id of the new one, which is CREATED.

        What was done up to the checkpoint is done in the new one as well, with its reports; its worktrees will start
        from the checkpoint's commits. The first workflow stays as it is.
        """
        parts = self._parts
        async with parts.store.transaction() as tx:
            point = await tx.checkpoints.get(checkpoint_id)
            if not point.complete:
                raise NotFound(f"checkpoint {checkpoint_id} was never finished: there is nothing to fork from")
            first = await tx.workflows.get(point.workflow_id)
            works = await tx.works.of_workflow(first.id)
            kept = _checkpoints_kept(point, works, await tx.checkpoints.of_workflow(first.id))
            spaces = {space.work_id: space for space in await tx.work_spaces.of_workflow(first.id)}
            reports = await tx.reports.of_workflow(first.id)
            gits = {git_id: await tx.gits.get(git_id) for item in kept.values() for git_id in item.hashes}
        fork = self._fork(first, point, kept, name)
        copies = {work.id: self._copy(work, fork.id, done=work.id in kept) for work in works}
        folders = {
            work_id: WorkSpace(
                space_id(copies[work_id]), fork.id, copies[work_id].id, parts.files.path(copies[work_id])
            )
            for work_id in kept
            if work_id in spaces
        }
        for work_id, space in folders.items():
            await parts.files.copy(spaces[work_id], space)
        points = self._points(fork, copies, kept)
        for own in points:  # held before they are recorded: what is recorded can be gone back to
            for git_id in own.hashes:
                await parts.git.keep(gits[git_id], own)
        async with parts.step() as step:
            await self._save(step, fork, copies, points)
            for work_id, space in folders.items():
                await step.tx.work_spaces.save(space)
                for report in reports:
                    if report.work_id == work_id and report.file_path:
                        await self._copy_report(step, report, copies[work_id], works, spaces[work_id], space)
            step.tell(fork.id, WorkflowCreated(fork.id))
        return fork.id

    def _fork(self, first: Workflow, point: Checkpoint, kept: dict[str, Checkpoint], name: str | None) -> Workflow:
        """The new workflow; its trees start from what the checkpoint has, which has what came before it."""
        hashes: dict[str, str] = {}
        for item in (*sorted(kept.values(), key=lambda item: item.id), point):
            hashes.update(item.hashes)
        return replace(
            first,
            id=self._parts.ids.new("wf"),
            name=name or f"{first.name} (fork)",
            created_at=self._parts.clock(),
            git_refs=tuple(GitRef(ref.git_id, hashes.get(ref.git_id, ref.base)) for ref in first.git_refs),
            variables=dict(first.variables),
            status=WorkflowStatus.CREATED,
            reason=None,
            work_statuses={},
            work_tree_statuses={},
            forked_from=point.id,
            resuming=None,
            review=None,
            version=0,
        )

    def _copy(self, work: Work, workflow_id: str, *, done: bool) -> Work:
        copy = deepcopy(work)
        copy.id, copy.workflow_id, copy.version = self._parts.ids.new("work"), workflow_id, 0
        for task in copy.tasks:
            task.id = self._parts.ids.new("task")
        if not done:
            copy.restart()
        copy.apart = False
        return copy

    def _points(self, fork: Workflow, copies: dict[str, Work], kept: dict[str, Checkpoint]) -> list[Checkpoint]:
        """The checkpoints of the new workflow, the same commits under ids of its own."""
        return [
            replace(
                point,
                id=self._parts.ids.new("cp"),
                workflow_id=fork.id,
                work_id=copies[work_id].id,
                work_attempt=copies[work_id].attempt,
                valid=True,
                version=0,
            )
            for work_id, point in sorted(kept.items(), key=lambda pair: pair[1].id)
        ]

    async def _save(self, step: UnitOfWork, fork: Workflow, copies: dict[str, Work], points: list[Checkpoint]) -> None:
        for work in copies.values():
            fork.work_changed(work.id, work.status)
            await step.tx.works.save(work)
        await step.tx.workflows.save(fork)
        for point in points:
            await step.tx.checkpoints.save(point)

    async def _copy_report(
        self, step: UnitOfWork, report: Report, work: Work, works: list[Work], source: WorkSpace, target: WorkSpace
    ) -> None:
        original = next(item for item in works if item.id == report.work_id)
        place = next((index for index, task in enumerate(original.tasks) if task.id == report.task_id), None)
        if place is None:
            return
        task = work.tasks[place]
        copy = replace(
            report,
            id=self._parts.ids.new("report"),
            workflow_id=work.workflow_id,
            work_id=work.id,
            task_id=task.id,
            file_path=(report.file_path or "").replace(source.path, target.path, 1),
            version=0,
        )
        task.report_id = copy.id
        await step.tx.reports.save(copy)
        await step.tx.works.save(work)


def _checkpoints_kept(point: Checkpoint, works: list[Work], points: list[Checkpoint]) -> dict[str, Checkpoint]:
    """The checkpoints of the works that were done when this one was made: that Work, and those it came after."""
    work = next((item for item in works if item.id == point.work_id), None)
    if work is None:
        raise NotFound(f"the work of checkpoint {point.id} was taken out of the plan: it cannot be forked any more")
    before = WorkDependencies(works).before(work)
    earlier = sorted((item for item in points if item.complete and item.id < point.id), key=lambda item: item.id)
    return {item.work_id: item for item in earlier if item.work_id in before} | {work.id: point}


# ModifyWorkflow: the plan of a workflow nobody works on is changed.


_USING_STATUSES = (WorkflowStatus.READY, WorkflowStatus.PAUSED)  # modifiable, and what it uses is registered


class ModifyWorkflow:
    """Change the plan of a workflow that is CREATED, READY, PAUSED or FAILED: what is not done yet."""

    def __init__(self, parts: WorkflowContext) -> None:
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

    async def _save(self, step: UnitOfWork, workflow: Workflow, editor: PlanEditor) -> None:
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

    async def _set_git_refs(self, step: UnitOfWork, workflow: Workflow, change: SetGitRefs) -> None:
        for ref in change.refs:
            await step.tx.gits.get(ref.git_id)
        added, removed = workflow.change_git_refs(change.refs)
        for tree in await step.tx.work_trees.of_workflow(workflow.id):
            if tree.git_id in removed and tree.status not in (WorkTreeStatus.RELEASED, WorkTreeStatus.PENDING_RELEASE):
                tree.mark_for_release()
                await step.tx.work_trees.save(tree)
                step.tell(workflow.id, WorkTreePendingRelease(tree.id, workflow.id, tree.git_id))
            elif tree.git_id in added and tree.status is WorkTreeStatus.PENDING_RELEASE:
                tree.reclaim()
                await step.tx.work_trees.save(tree)
        step.tell(workflow.id, WorkflowGitRefsUpdated(workflow.id, added, removed))

    async def _change_uses(self, step: UnitOfWork, workflow: Workflow, works: list[Work], before: list[str]) -> None:
        """MCP servers are free at once; a repository stays used until its worktree is released."""
        after = server_ids(workflow, works)
        for server_id in set(after) - set(before):
            await step.tx.mcp_servers.get(server_id)
        if workflow.status in _USING_STATUSES:
            await self._resources.register_uses(step.tx, workflow, works)
            gone = [server_id for server_id in before if server_id not in after]
            await self._resources.release(step.tx.mcp_servers, gone, workflow.id)
