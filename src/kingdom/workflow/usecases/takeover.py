"""Go on with a workflow whose files are on another machine, from its last checkpoint.

Engines that share a store push every checkpoint to a remote. What was done since the last one stays where it was: the
machine that is gone has it, and keeps it under rescue refs when it returns.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from kingdom.workflow.context import UnitOfWork, WorkflowContext, log
from kingdom.workflow.domain.events import WorkflowPaused
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.domain.workflow import ResumePlan, Workflow
from kingdom.workflow.errors import HeldElsewhere, WorkflowError
from kingdom.workflow.usecases.lifecycle import (
    CannotResume,
    begin_resume,
    finish_resume,
    make_missing_trees,
    prepare_workflow,
)
from kingdom.workflow.usecases.resources import choose_checkpoint, plan_trees
from kingdom.workflow.usecases.steps import may_be_alive

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.store.holds import Holder

_ANYWHERE: Final = ("StartWorkflow", "PauseWorkflow", "CancelWorkflow", "DeleteWorkflow")
"""Commands that need nothing of what only the former machine has."""


class FilesElsewhere(WorkflowError):
    """A command that would go on with files of a machine whose engine does not run."""

    code = "WFL_FILES_ELSEWHERE"


async def hold_own(context: WorkflowContext, workflow_ids: Collection[str]) -> None:
    """Hold those of these workflows that nobody holds and whose files are on this machine.

    One from before the store was shared has no holder: another machine would find neither its agents nor its files.
    """
    if workflow_ids:
        assert context.store.holds is not None, "only an engine that shares its store holds workflows"
        await context.store.holds.claim(await _with_files_here(context, workflow_ids))


async def _with_files_here(context: WorkflowContext, workflow_ids: Collection[str]) -> list[str]:
    """Return those of these workflows whose worktrees are on this machine, or that have none."""
    async with context.store.reading() as tx:
        trees = {one: await tx.work_trees.of_workflow(one) for one in workflow_ids}
    return [one for one, found in trees.items() if all(map(context.git.is_here, found))]


async def admit_command(
    context: WorkflowContext, kind: str, workflow_id: str, arguments: Mapping[str, Any] | None = None
) -> None:
    """Make sure that this engine holds the workflow of a command; take it over from an engine that is gone.

    Raises :class:`HeldElsewhere` if another engine holds it and runs, and :class:`FilesElsewhere`.
    """
    holds = context.store.holds
    if holds is None or holds.is_mine(workflow_id):
        return
    async with context.store.reading() as tx:
        found = await tx.workflows.find(workflow_id)
    name = workflow_id if found is None else found.name
    unheld = kind == "ResumeWorkflow" and not await holds.others([workflow_id])
    if unheld and not await _with_files_here(context, [workflow_id]):
        raise FilesElsewhere(
            f"the files of workflow {name} are on a machine whose engine has not run since the store is "
            "shared: start it there (kingdom workflow engine)"
        )
    if not (others := await holds.claim([workflow_id])):
        return
    holder = others[workflow_id]
    if holder.alive:
        raise HeldElsewhere(f"workflow {name} is held by the engine {holder.owner} ({holder.home})")
    async with context.store.reading() as tx:
        workflow = await tx.workflows.get(workflow_id)
    if not workflow.is_active and not _goes_anywhere(workflow, kind, arguments or {}):
        raise _files_elsewhere(name, holder)
    if not await take_over_workflow(context, workflow_id, holder.home):
        raise HeldElsewhere(f"another engine has just taken over workflow {name}")


def _goes_anywhere(workflow: Workflow, kind: str, arguments: Mapping[str, Any]) -> bool:
    if kind != "ResumeWorkflow":
        return kind in _ANYWHERE
    back = arguments.get("discard") or arguments.get("checkpoint_id") is not None
    return bool(back) or (workflow.status is WorkflowStatus.FAILED and not arguments.get("retry"))


def _files_elsewhere(name: str, holder: Holder) -> FilesElsewhere:
    return FilesElsewhere(
        f"the files of workflow {name} are on {holder.home}, whose engine has been gone for "
        f"{holder.ended_seconds:.0f} s: start it there (kingdom workflow engine), or go on here from the last "
        f"checkpoint: kingdom workflow resume {quote(name)} --discard"
    )


async def take_over_workflow(context: WorkflowContext, workflow_id: str, home: str) -> bool:
    """Take a workflow from a home whose lease has ended; one that runs goes on from its last checkpoint.

    Returns False if the lease has not ended, or somebody was faster. If the checkpoints cannot be fetched, the workflow
    is PAUSED with the reason.
    """
    holds = context.store.holds
    assert holds is not None, "only an engine that shares its store takes over"
    async with context.locks.of(workflow_id):
        async with holds.taking(workflow_id), context.unit_of_work() as unit:
            if not await holds.take_over(unit.tx.session, workflow_id, home):
                return False
            workflow = await unit.tx.workflows.get(workflow_id)
            log.warning("workflow %s (%s) is taken over from %s", workflow_id, workflow.status, home)
            works = await unit.tx.works.of_workflow(workflow_id)
            await _move_files(context, unit, workflow, works, home)
            if workflow.status in (WorkflowStatus.RUNNING, WorkflowStatus.RESUMING):
                await _resume_from_checkpoint(context, unit, workflow, home)
            elif workflow.status in (WorkflowStatus.PREPARING, WorkflowStatus.READY):
                await plan_trees(context, unit.tx, workflow)
        if workflow.status is WorkflowStatus.PREPARING:
            await prepare_workflow(context, workflow_id)
        elif workflow.status is WorkflowStatus.READY:
            await make_missing_trees(context, workflow_id)
        else:
            try:
                await finish_resume(context, workflow_id)
            except CannotResume as error:  # it is PAUSED, with the reason
                log.warning("%s", error)
    return True


async def _move_files(
    context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, works: list[Work], home: str
) -> None:
    """Record that the folders and conversations of a workflow are gone; write those of its reports that are stored."""
    by_id = {work.id: work for work in works}
    for work in works:
        if may_be_alive(work):
            work.agent_stopped()
        work.session_id = None  # a conversation is a file of the agent's machine
        await unit.tx.works.save(work)
    spaces = {space.work_id: space for space in await unit.tx.work_spaces.of_workflow(workflow.id)}
    for space in spaces.values():
        if space.work_id in by_id:
            space.path = context.files.path(by_id[space.work_id])
            await context.files.make(space)
            await unit.tx.work_spaces.save(space)
    for report in await unit.tx.reports.of_workflow(workflow.id):
        task = next((task for work in works for task in work.tasks if task.id == report.task_id), None)
        if report.text is not None and task is not None and report.work_id in spaces:
            report.file_path = await context.files.write_report(spaces[report.work_id], task, report.text)
            await unit.tx.reports.save(report)
    for tree in await unit.tx.work_trees.of_workflow(workflow.id):
        tree.lose(f"its files are on {home}")
        await unit.tx.work_trees.save(tree)
    for work in works:
        if work.apart and work.status is WorkStatus.COMPLETED and work.checkpoint_id is not None:
            hashes = (await unit.tx.checkpoints.get(work.checkpoint_id)).hashes
            for tree in await plan_trees(context, unit.tx, workflow, work):
                tree.base = hashes.get(tree.git_id, tree.base)
                await unit.tx.work_trees.save(tree)


async def _resume_from_checkpoint(context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, home: str) -> None:
    plan = workflow.resuming
    if plan is None or plan.mode != "reset":
        point = await choose_checkpoint(unit.tx, workflow.id, None)
        plan = ResumePlan("reset", None if point is None else point.id, hold=plan is not None and plan.hold)
    workflow.pause(f"its engine on {home} is gone")
    unit.record(workflow.id, WorkflowPaused(workflow.id))
    await begin_resume(context, unit, workflow, plan)
