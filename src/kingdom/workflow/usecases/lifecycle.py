"""Start, pause, resume, cancel and delete workflows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import Final

from kingdom.bus import BusError
from kingdom.workflow.context import UnitOfWork, WorkflowContext, workflow_event
from kingdom.workflow.domain.events import (
    PersonActed,
    WorkCompleted,
    WorkflowCancelled,
    WorkflowDeleted,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
)
from kingdom.workflow.domain.refusals import refusal
from kingdom.workflow.domain.resources import Checkpoint
from kingdom.workflow.domain.statuses import (
    WORKFLOW_ACTIVE_STATUSES,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
)
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import ResumePlan, Workflow
from kingdom.workflow.errors import IllegalTransition, NotModifiable, StoreError, WorkflowError
from kingdom.workflow.store.transactions import WorkflowTransaction
from kingdom.workflow.usecases.landing import give_up_landing
from kingdom.workflow.usecases.resources import (
    TreeOutcome,
    checkpoint_counter,
    choose_checkpoint,
    make_trees,
    plan_trees,
    record_released,
    record_rollback,
    record_trees,
    register_uses,
    release_uses,
    roll_back_files,
    valid_checkpoints,
)
from kingdom.workflow.usecases.steps import may_be_alive, pause_works, requeue_dead_events, stop_agents

FIRST_POINT: Final = "start"
"""Instead of the id of a checkpoint: before the first Work."""
STARTABLE_STATUSES: Final = (WorkflowStatus.CREATED, WorkflowStatus.READY)
BUSY_STATUSES: Final = WORKFLOW_ACTIVE_STATUSES
"""A workflow in one of these cannot be deleted."""


class CannotResume(WorkflowError):
    """A workflow could not be resumed; it is PAUSED again."""

    code = "WFL_CANNOT_RESUME"


# ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def start_workflow(context: WorkflowContext, workflow_id: str, *, prepare_only: bool = False) -> None:
    """Prepare a workflow and start it; with ``prepare_only`` it stays READY until it is started again.

    Registers its repositories and MCP servers and makes its worktrees. If a worktree cannot be made, the workflow is
    FAILED with the reason; it can be resumed. May be repeated after an outage of the store: it goes on then.
    """
    async with context.locks.of(workflow_id), context.unit_of_work() as unit:
        workflow = await unit.tx.workflows.get(workflow_id)
        if workflow.status is WorkflowStatus.READY and not prepare_only:
            workflow.start()
            unit.record(workflow_id, WorkflowStarted(workflow_id))
        elif workflow.status is not WorkflowStatus.PREPARING or workflow_id in context.preparing:
            if workflow.status is WorkflowStatus.PAUSED:  # PREPARING may follow PAUSED, but only in a resume
                text = refusal(workflow.name, workflow.status, "cannot be started")
                raise IllegalTransition("workflow", workflow_id, workflow.status, WorkflowStatus.PREPARING, text)
            workflow.prepare()
            workflow.prepare_only = prepare_only
            await register_uses(unit.tx, workflow, await unit.tx.works.of_workflow(workflow_id))
            await plan_trees(context, unit.tx, workflow)
        await unit.tx.workflows.save(workflow)
    if workflow.status is WorkflowStatus.PREPARING:
        context.preparing.add(workflow_id)
        try:
            outcomes = await make_trees(context, workflow_id)  # without the lock: it may take long; cancel must work
            async with context.locks.of(workflow_id):
                await _finish_preparation(context, workflow_id, outcomes)
        finally:
            context.preparing.discard(workflow_id)


async def prepare_workflow(context: WorkflowContext, workflow_id: str) -> None:
    """Make the worktrees of a workflow that is PREPARING and go on. May be repeated; needs the workflow's lock."""
    await _finish_preparation(context, workflow_id, await make_trees(context, workflow_id))


async def _finish_preparation(context: WorkflowContext, workflow_id: str, outcomes: Sequence[TreeOutcome]) -> None:
    async with context.unit_of_work() as unit:
        problems = await record_trees(context, unit, outcomes)
        workflow = await unit.tx.workflows.find(workflow_id)
        if workflow is None or workflow.status is not WorkflowStatus.PREPARING:
            return  # it was cancelled meanwhile
        if problems:
            reason = f"a worktree could not be made: {'; '.join(problems)}"
            workflow.fail(reason)
            unit.record(workflow_id, WorkflowFailed(workflow_id, reason))
        else:
            workflow.ready()
            if not workflow.prepare_only:
                workflow.start()
                unit.record(workflow_id, WorkflowStarted(workflow_id))
        await unit.tx.workflows.save(workflow)


# ── pause and cancel ──────────────────────────────────────────────────────────────────────────────────────────────


async def pause_workflow(context: WorkflowContext, workflow_id: str, reason: str | None = None) -> None:
    """Stop the agents of a running workflow, then pause it.

    Raises :class:`kingdom.workflow.errors.IllegalTransition`.
    """
    async with context.locks.of(workflow_id):
        works = await _works_before(context, workflow_id, WorkflowStatus.PAUSED)
        await stop_agents(context, works)
        async with context.unit_of_work() as unit:
            workflow = await unit.tx.workflows.get(workflow_id)
            works = await unit.tx.works.of_workflow(workflow_id)
            await pause_works(unit, workflow, works, stopped=True)
            workflow.pause(reason)
            await unit.tx.workflows.save(workflow)
            unit.record(workflow_id, WorkflowPaused(workflow_id))


async def cancel_workflow(context: WorkflowContext, workflow_id: str) -> None:
    """Stop the agents of a workflow that is not over, then cancel it.

    One that is completed and waits to be landed stays COMPLETED, and is not landed. Raises
    :class:`kingdom.workflow.errors.IllegalTransition`.
    """
    async with context.locks.of(workflow_id):
        if await give_up_landing(context, workflow_id):
            return
        works = await _works_before(context, workflow_id, WorkflowStatus.CANCELLED)
        await requeue_dead_events(context, workflow_id)
        await stop_agents(context, works)
        async with context.unit_of_work() as unit:
            workflow = await unit.tx.workflows.get(workflow_id)
            for work in await unit.tx.works.of_workflow(workflow_id):
                if may_be_alive(work):
                    work.agent_stopped()
                if work.status is not WorkStatus.COMPLETED:
                    work.cancel()
                workflow.work_changed(work.id, work.status)
                await unit.tx.works.save(work)
            workflow.cancel()
            await unit.tx.workflows.save(workflow)
            unit.record(workflow_id, WorkflowCancelled(workflow_id))


async def _works_before(context: WorkflowContext, workflow_id: str, wanted: WorkflowStatus) -> list[Work]:
    """Return the works of a workflow, after checking the transition: nothing is stopped if it is not allowed."""
    async with context.store.transaction() as tx:
        workflow = await tx.workflows.get(workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    workflow.check_may_become(wanted)
    return works


# ── resume ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def resume_workflow(
    context: WorkflowContext,
    workflow_id: str,
    *,
    checkpoint_id: str | None = None,
    retry: bool = False,
    discard: bool = False,
    hold: bool = False,
) -> None:
    """Resume a PAUSED or FAILED workflow, in place or from a checkpoint.

    After a pause it goes on in place: in the same conversations, with the files as they are; only the task at which it
    stopped is repeated. After a failure it goes on from the last checkpoint, or (``retry``) in place. ``discard`` goes
    back to the last checkpoint also after a pause, ``checkpoint_id`` to that one, or to before the first Work
    (:data:`FIRST_POINT`); this is possible when it is COMPLETED, too.

    Going back resets the worktrees (to their base if there is no checkpoint), keeps what was done since under a rescue
    ref, and restarts the works behind it. With ``hold`` the workflow is PAUSED then.

    Raises :class:`kingdom.workflow.errors.NotFound` if the checkpoint, a repository or an MCP server is missing, and
    :class:`CannotResume` if the trees cannot be reset; the workflow is then PAUSED. May be repeated after an outage of
    the store: it goes on then.
    """
    async with context.locks.of(workflow_id):
        async with context.unit_of_work() as unit:
            workflow = await unit.tx.workflows.get(workflow_id)
            plan = await _resume_plan(unit.tx, workflow, checkpoint_id, retry=retry, discard=discard)
            plan = replace(plan, hold=hold)
            if workflow.status is not WorkflowStatus.RESUMING or workflow.resuming != plan:
                await begin_resume(context, unit, workflow, plan)
        await requeue_dead_events(context, workflow_id)
        await finish_resume(context, workflow_id)


async def _resume_plan(
    tx: WorkflowTransaction, workflow: Workflow, checkpoint_id: str | None, *, retry: bool, discard: bool
) -> ResumePlan:
    if checkpoint_id == FIRST_POINT:
        return ResumePlan("reset")
    if checkpoint_id is None:
        if workflow.status is WorkflowStatus.COMPLETED:
            back = f"kingdom workflow resume {quote(workflow.name)} --from CHECKPOINT goes back to one"
            raise NotModifiable(f"{refusal(workflow.name, workflow.status, 'cannot be resumed')}, {back}")
        if workflow.resuming is not None and not retry and not discard:
            return workflow.resuming  # it failed half way
        works = await tx.works.of_workflow(workflow.id)
        failed = workflow.status is WorkflowStatus.FAILED or any(work.status is WorkStatus.FAILED for work in works)
        if retry or not (discard or failed):
            return ResumePlan("in place")
    point = await choose_checkpoint(tx, workflow.id, checkpoint_id)
    return ResumePlan("reset", None if point is None else point.id)


async def answer_workflow(
    context: WorkflowContext, workflow_id: str, text: str, *, task_id: str | None = None, attempt: int | None = None
) -> None:
    """Answer the question of an agent; its Work goes on in the same conversation.

    With ``task_id`` and ``attempt`` only the question of that attempt is answered; nothing happens if it is not open
    any more. Otherwise raises :class:`kingdom.workflow.errors.NotModifiable` if no Work waits for an answer.
    """
    async with context.locks.of(workflow_id):
        async with context.unit_of_work() as unit:
            workflow = await unit.tx.workflows.get(workflow_id)
            works = await unit.tx.works.of_workflow(workflow_id)
            waiting = next((work for work in works if work.status is WorkStatus.WAITING), None)
            task = None if waiting is None else waiting.current_task
            if workflow.status is not WorkflowStatus.RESUMING:  # otherwise an outage of the store came in between
                if task_id is not None and (task is None or (task.id, task.attempt) != (task_id, attempt)):
                    return
                if waiting is None:
                    why = "cannot be answered, as no work of it asks anything"
                    raise NotModifiable(refusal(workflow.name, workflow.status, why))
                waiting.answer(text)
                await unit.tx.works.save(waiting)
                await begin_resume(context, unit, workflow, ResumePlan("in place"))
        await requeue_dead_events(context, workflow_id)
        await finish_resume(context, workflow_id)


async def begin_resume(context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, plan: ResumePlan) -> None:
    """Record how a workflow is being resumed, and what has to be made for it; :func:`finish_resume` follows."""
    workflow.resume(plan)
    await register_uses(unit.tx, workflow, await unit.tx.works.of_workflow(workflow.id))
    await plan_trees(context, unit.tx, workflow)
    await unit.tx.workflows.save(workflow)


async def finish_resume(context: WorkflowContext, workflow_id: str) -> None:
    """Bring a workflow from RESUMING to RUNNING. May be repeated; needs the workflow's lock."""
    async with context.store.transaction() as tx:
        workflow = await tx.workflows.get(workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    plan = workflow.resuming
    if workflow.status is not WorkflowStatus.RESUMING or plan is None:
        return
    try:
        await stop_agents(context, works)
        await make_missing_trees(context, workflow_id)
        if plan.mode == "reset":
            await roll_back_files(context, workflow_id, plan.checkpoint_id)
    except (StoreError, BusError):
        raise  # an outage: it stays RESUMING, and goes on later
    except Exception as error:
        await _pause_again(context, workflow_id, f"it could not be resumed: {error}", plan)
        raise CannotResume(f"workflow {workflow.name} could not be resumed, it is paused: {error}") from error
    async with context.unit_of_work() as unit:
        workflow = await unit.tx.workflows.get(workflow_id)
        if plan.mode == "reset":
            await record_rollback(unit, workflow, plan.checkpoint_id)
        else:
            await _requeue_works(unit, workflow)
        works = await unit.tx.works.of_workflow(workflow.id)
        if plan.hold:
            point = None if plan.checkpoint_id is None else await unit.tx.checkpoints.find(plan.checkpoint_id)
            workflow.pause(f"it went back to {_point_name(point, works)}")
            unit.record(workflow.id, WorkflowPaused(workflow.id))
        else:
            workflow.resumed()
            unit.record(workflow.id, WorkflowResumed(workflow.id, _first_open_work(works).id))
        await unit.tx.workflows.save(workflow)


async def finish_transition(context: WorkflowContext, workflow_id: str) -> None:
    """Go on with a workflow that is PREPARING or RESUMING; one that cannot be resumed is PAUSED with the reason."""
    async with context.locks.of(workflow_id):
        async with context.store.reading() as tx:
            workflow = await tx.workflows.find(workflow_id)
        if workflow is not None and workflow.status is WorkflowStatus.PREPARING:
            await prepare_workflow(context, workflow_id)
        elif workflow is not None:
            with contextlib.suppress(CannotResume):
                await finish_resume(context, workflow_id)


def _point_name(point: Checkpoint | None, works: Sequence[Work]) -> str:
    if point is None:
        return "the start"
    return f"the checkpoint of {next((work.name for work in works if work.id == point.work_id), point.id)}"


async def make_missing_trees(context: WorkflowContext, workflow_id: str) -> None:
    """Make the worktrees that are CREATING: the workflow's, and those that a done Work has of its own."""
    async with context.store.reading() as tx:
        works = await tx.works.heads(workflow_id)
        trees = await tx.work_trees.of_workflow(workflow_id)
    creating = {tree.work_id for tree in trees if tree.status is WorkTreeStatus.CREATING}
    owners = [work.id for work in works if work.status is WorkStatus.COMPLETED and work.id in creating]
    outcomes = [outcome for owner in (None, *owners) for outcome in await make_trees(context, workflow_id, owner)]
    async with context.unit_of_work() as unit:
        problems = await record_trees(context, unit, outcomes)
    if problems:
        raise CannotResume("; ".join(problems))


async def _pause_again(context: WorkflowContext, workflow_id: str, reason: str, plan: ResumePlan) -> None:
    async with context.unit_of_work() as unit:
        workflow = await unit.tx.workflows.get(workflow_id)
        workflow.pause(reason)
        workflow.resuming = plan
        await unit.tx.workflows.save(workflow)
        unit.record(workflow_id, WorkflowPaused(workflow_id))


async def _requeue_works(unit: UnitOfWork, workflow: Workflow) -> None:
    """In place: requeue the works that stopped, and retry missing checkpoints of works whose tasks are all done."""
    points = {point.work_id for point in await valid_checkpoints(unit.tx, workflow.id)}
    for work in await unit.tx.works.of_workflow(workflow.id):
        if work.status is WorkStatus.FAILED and work.current_task is None:
            work.complete()
            workflow.work_changed(work.id, work.status)
            await unit.tx.works.save(work)
        if work.status in (WorkStatus.PAUSED, WorkStatus.WAITING, WorkStatus.FAILED, WorkStatus.RUNNING):
            work.requeue()
            workflow.work_changed(work.id, work.status)
            await unit.tx.works.save(work)
        elif work.status is WorkStatus.COMPLETED and work.id not in points:
            unit.record(workflow.id, WorkCompleted(work.id, workflow.id), work.attempt)


def _first_open_work(works: list[Work]) -> Work:
    """Return the first Work that is not done, or the last one."""
    return next((work for work in works if work.status is not WorkStatus.COMPLETED), works[-1])


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def release_landed(context: WorkflowContext, workflow_id: str) -> int:
    """Remove the worktrees and branches of a workflow whose result is merged; return how many. May be repeated.

    One that runs again, or has more works to do, keeps them.
    """
    async with context.locks.of(workflow_id):
        async with context.store.transaction() as tx:
            workflow = await tx.workflows.get(workflow_id)
            trees = await tx.work_trees.of_workflow(workflow_id)
            mine = [tree for tree in trees if tree.status in (WorkTreeStatus.READY, WorkTreeStatus.PENDING_RELEASE)]
            if workflow.status is not WorkflowStatus.COMPLETED:
                return 0
            for tree in mine:
                if tree.status is WorkTreeStatus.READY:
                    tree.mark_for_release()
                    await tx.work_trees.save(tree)
        for tree in mine:
            await context.git.release(tree, delete_branch=True)
        async with context.unit_of_work() as unit:
            await record_released(unit, mine)
    return len(mine)


async def delete_workflow(context: WorkflowContext, workflow_id: str) -> None:
    """Delete a workflow: its worktrees, branches, checkpoints, workspaces and runs, then its rows but events and cost.

    What is not landed is lost with it. Raises
    :class:`kingdom.workflow.errors.NotModifiable` while it is busy.
    """
    async with context.locks.of(workflow_id):
        async with context.store.transaction() as tx:
            workflow = await tx.workflows.get(workflow_id)
            _check_deletable(workflow)
            made = await tx.work_trees.of_workflow(workflow_id)
            git_ids = {ref.git_id for ref in workflow.git_refs} | {tree.git_id for tree in made}
            gits = [git for git_id in sorted(git_ids) if (git := await tx.gits.find(git_id)) is not None]
            trees = [tree for tree in made if tree.status is not WorkTreeStatus.RELEASED]
            for tree in trees:
                if tree.status is not WorkTreeStatus.PENDING_RELEASE:
                    tree.mark_for_release()  # after a crash from here on, nobody takes it for intact
                    await tx.work_trees.save(tree)
            spaces = await tx.work_spaces.of_workflow(workflow_id)
            works = await tx.works.of_workflow(workflow_id)
        for tree in trees:
            await context.git.release(tree)
        for git in gits:
            await context.git.forget(git, workflow_id)
        for space in spaces:
            await context.files.remove(space)
        for work in works:
            await context.agents.forget(work.id)
        async with context.unit_of_work() as unit:
            workflow = await unit.tx.workflows.get(workflow_id)
            _check_deletable(workflow)
            await release_uses(unit.tx, workflow, await unit.tx.works.of_workflow(workflow_id))
            await _delete_rows(unit.tx, workflow_id)
            unit.record(workflow_id, WorkflowDeleted(workflow_id))


async def _delete_rows(tx: WorkflowTransaction, workflow_id: str) -> None:
    for rows in (tx.works, tx.reports, tx.checkpoints, tx.work_trees, tx.work_spaces, tx.landings):
        for item in await rows.of_workflow(workflow_id):
            await rows.delete(item.id)
    await tx.forget_counter(checkpoint_counter(workflow_id))
    await tx.workflows.delete(workflow_id)


def _check_deletable(workflow: Workflow) -> None:
    if workflow.status in BUSY_STATUSES:
        cancel = f"kingdom workflow cancel {quote(workflow.name)} ends it"
        raise NotModifiable(f"{refusal(workflow.name, workflow.status, 'cannot be deleted now')}, {cancel}")


async def record_person(context: WorkflowContext, workflow_id: str, user: str, action: str) -> None:
    """Record in the events of a workflow who did something with it."""
    async with context.store.transaction() as tx:
        tx.record(workflow_event(workflow_id, PersonActed(workflow_id, user, action)))
