"""ForkWorkflow: a second workflow, on branches of its own, from a checkpoint of the first."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from kingdom.workflow.domain.errors import NotFound
from kingdom.workflow.domain.events import WorkflowCreated
from kingdom.workflow.domain.plan import Plan
from kingdom.workflow.domain.resources import Checkpoint, WorkSpace
from kingdom.workflow.domain.sources import GitRef
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.domain.task import Report
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.resource import space_id


class ForkWorkflow:
    """Make a workflow that begins where another one stood."""

    def __init__(self, parts: Parts) -> None:
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
            kept = _kept(point, works, await tx.checkpoints.of_workflow(first.id))
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
            copy.begin_anew()
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

    async def _save(self, step: Step, fork: Workflow, copies: dict[str, Work], points: list[Checkpoint]) -> None:
        for work in copies.values():
            fork.work_changed(work.id, work.status)
            await step.tx.works.save(work)
        await step.tx.workflows.save(fork)
        for point in points:
            await step.tx.checkpoints.save(point)

    async def _copy_report(
        self, step: Step, report: Report, work: Work, works: list[Work], source: WorkSpace, target: WorkSpace
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


def _kept(point: Checkpoint, works: list[Work], points: list[Checkpoint]) -> dict[str, Checkpoint]:
    """The checkpoints of the works that were done when this one was made: that Work, and those it came after."""
    work = next((item for item in works if item.id == point.work_id), None)
    if work is None:
        raise NotFound(f"the work of checkpoint {point.id} was taken out of the plan: it cannot be forked any more")
    before = Plan(works).before(work)
    earlier = sorted((item for item in points if item.complete and item.id < point.id), key=lambda item: item.id)
    return {item.work_id: item for item in earlier if item.work_id in before} | {work.id: point}
