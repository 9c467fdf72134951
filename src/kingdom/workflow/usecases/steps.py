"""The steps of a running workflow: start works, send queries, complete tasks, and stop what cannot go on.

Handlers take these steps inside their unit of work. Functions that call agents or git run after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kingdom.workflow.context import UnitOfWork, WorkflowContext, workflow_event
from kingdom.workflow.domain.events import (
    AgentError,
    QueryFailed,
    QuerySent,
    ReportFailed,
    ReportGenerationStarted,
    TaskCompleted,
    TaskStarted,
    WorkCompleted,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowPaused,
    WorkStarted,
    WorkStatusChanged,
)
from kingdom.workflow.domain.plan import WorkDependencies, WorkHead
from kingdom.workflow.domain.resources import WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import AgentStatus, QueryStatus, WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.store.transactions import STREAM, WorkflowTransaction
from kingdom.workflow.usecases.resources import (
    make_trees,
    plan_space,
    plan_trees,
    record_trees,
    space_id,
    trees_of,
)

_MAX_DEAD_EVENTS: Final = 10_000  # dead letters of the stream that are searched
_ALIVE_STATUSES: Final = (AgentStatus.STARTING, AgentStatus.RUNNING)


class _CannotStart(Exception):
    """A Work has no worktree or workspace to run in."""


# ── works ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def start_next_works(context: WorkflowContext, unit: UnitOfWork, workflow: Workflow) -> None:
    """Start every Work that may start now; complete or pause the workflow when none is left to run.

    May be repeated. Does nothing unless the workflow is RUNNING.
    """
    if workflow.status is not WorkflowStatus.RUNNING:
        return
    works = await unit.tx.works.heads(workflow.id)
    done = [work.id for work in works if work.done]
    running = any(work.status is WorkStatus.RUNNING for work in works)
    if workflow.review is not None:
        if not running:
            workflow.pause(workflow.review)
            unit.record(workflow.id, WorkflowPaused(workflow.id))
            await unit.tx.workflows.save(workflow)
    elif len(done) == len(works):
        workflow.complete()
        unit.record(workflow.id, WorkflowCompleted(workflow.id))
        await unit.tx.workflows.save(workflow)
    else:
        plan = WorkDependencies(works)
        for head in plan.startable(done):
            work = await unit.tx.works.find_at_work(head.id)
            assert work is not None, "its head was just read"
            await _start_work(context, unit, workflow, work, plan)


async def _start_work(
    context: WorkflowContext,
    unit: UnitOfWork,
    workflow: Workflow,
    work: Work,
    plan: WorkDependencies[WorkHead],
) -> None:
    work.start(apart=plan.apart(work), session_id=await _continued_session(unit.tx, work, plan))
    await unit.tx.works.save(work)
    if work.apart:
        await _plan_own_trees(context, unit, workflow, work, plan)
    space = await plan_space(context, unit, work)
    unit.record(workflow.id, WorkStarted(work.id, workflow.id), work.attempt)
    unit.after_commit(lambda: begin_work(context, work, space))


async def _continued_session(tx: WorkflowTransaction, work: Work, plan: WorkDependencies[WorkHead]) -> str | None:
    """Return the conversation that a Work goes on with; None if it has its own."""
    head = next((one for one in plan.works if one.name == work.continues), None)
    other = None if head is None else await tx.works.find_at_work(head.id)
    return None if other is None or other.engine != work.engine else other.session_id


async def _plan_own_trees(
    context: WorkflowContext,
    unit: UnitOfWork,
    workflow: Workflow,
    work: Work,
    plan: WorkDependencies[WorkHead],
) -> None:
    """Plan worktrees of the Work's own, based on the checkpoint of the Work before it."""
    earlier = plan.waits_for(work)
    if len(earlier) != 1:  # several branches: start from the workflow's own trees
        earlier = [item for item in plan.works if item.id in plan.before(work) and not plan.apart(item)][-1:]
    hashes: Mapping[str, str] = {}
    if earlier and earlier[0].checkpoint_id is not None:
        hashes = (await unit.tx.checkpoints.get(earlier[0].checkpoint_id)).hashes
    for tree in await plan_trees(context, unit.tx, workflow, work):
        if tree.git_id in hashes:
            tree.base = hashes[tree.git_id]
            await unit.tx.work_trees.save(tree)


async def begin_work(context: WorkflowContext, work: Work, space: WorkSpace | None = None) -> None:
    """Make what a started Work needs and start its agent, after the commit. May be repeated.

    ``space`` is looked up if it is not given. An error is recorded as ``AgentError``: the Work fails when that is
    handled, and its agent gets no query before.
    """

    async def start() -> None:
        try:
            await _make_places(context, work)
            await context.files.make(space or await _space_of(context, work))
            await context.agents.start(work)
        except Exception:
            work.agent_status = AgentStatus.ERROR  # a query that is recorded as sent already is not given to it
            raise

    async def save(tx: WorkflowTransaction) -> None:
        stored = await tx.works.find_at_work(work.id)
        if stored is not None and stored.attempt == work.attempt and stored.agent_status is AgentStatus.STARTING:
            stored.agent_start_failed()
            await tx.works.save(stored)

    await context.call_external(
        f"work {work.id} could not begin",
        start,
        lambda error: workflow_event(work.workflow_id, AgentError(work.id, error), work.attempt),
        save,
    )


async def _space_of(context: WorkflowContext, work: Work) -> WorkSpace:
    async with context.store.transaction() as tx:
        space = await tx.work_spaces.find(space_id(work))
    if space is None:
        raise _CannotStart(f"work {work.id} has no workspace any more")
    return space


async def _make_places(context: WorkflowContext, work: Work) -> None:
    if work.apart and (outcomes := await make_trees(context, work.workflow_id, work.id)):
        async with context.unit_of_work() as unit:
            problems = await record_trees(context, unit, outcomes)
        if problems:
            raise _CannotStart("; ".join(problems))
    if work.merge:
        async with context.store.transaction() as tx:
            works = await tx.works.heads(work.workflow_id)
            trees = await tx.work_trees.of_workflow(work.workflow_id)
        await _merge(context, work, works, trees)


async def _merge(context: WorkflowContext, work: Work, works: Sequence[WorkHead], trees: Sequence[WorkTree]) -> None:
    sources = {other.id: other.name for other in WorkDependencies(works).merged_into(work)}
    for tree in trees_of(work, trees):
        theirs = [
            other
            for other in trees
            if other.work_id in sources and other.git_id == tree.git_id and other.status is WorkTreeStatus.READY
        ]
        await context.git.merge(tree, theirs, f"{work.name}: merge {', '.join(sources.values())}")


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def send_query(context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, work: Work, task: Task) -> None:
    """Mark the query as sent, and send it after the commit. The caller saves the Work."""
    task.send()
    unit.record(workflow.id, TaskStarted(work.id, task.id), task.attempt)
    unit.record(workflow.id, QuerySent(work.id, task.id), task.attempt)
    unit.after_commit(lambda: deliver_query(context, workflow, work, task))


async def continue_task(context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, work: Work, task: Task) -> None:
    """Run a pending task: send its query, or only ask for its report if the query was answered before."""
    if task.query_status is QueryStatus.RESPONDED:
        task.go_on()
        await finish_or_report(context, unit, workflow, work, task)
    else:
        send_query(context, unit, workflow, work, task)
        await unit.tx.works.save(work)


async def finish_or_report(
    context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, work: Work, task: Task
) -> None:
    """Ask for the report of a task whose query is answered; complete the task if it needs none."""
    if not task.outline:
        await complete_task(context, unit, workflow, work, task)
        return
    report = await _report_of(context, unit, work, task)
    report.start()
    await unit.tx.reports.save(report)
    task.start_report(report.id)
    await unit.tx.works.save(work)
    unit.record(workflow.id, ReportGenerationStarted(report.id, task.id), task.attempt)
    unit.after_commit(lambda: write_report(context, work, task, report))


async def _report_of(context: WorkflowContext, unit: UnitOfWork, work: Work, task: Task) -> Report:
    """Return the task's report, reset if it belongs to an earlier attempt."""
    earlier = await unit.tx.reports.of_workflow(work.workflow_id) if task.attempt > 1 else []
    found = next((report for report in earlier if report.task_id == task.id), None)
    if found is None:
        return Report(context.ids.new("report"), work.workflow_id, work.id, task.id, task.outline)
    found.reset()
    found.outline = task.outline
    return found


async def deliver_query(context: WorkflowContext, workflow: Workflow, work: Work, task: Task) -> None:
    """Give the agent a query that is marked as sent. May be repeated. An error is recorded as ``QueryFailed``."""
    if work.agent_status is AgentStatus.ERROR:  # it could not begin; the AgentError that is recorded says why
        return
    if context.delivered is not None:
        context.delivered.add((task.id, task.attempt))
    attempt = task.attempt

    async def send() -> None:
        text = await context.queries.text(workflow, work, task)
        await context.agents.send_query(work, task, text)

    await context.call_external(
        f"the query of task {task.id} could not be sent",
        send,
        lambda error: workflow_event(workflow.id, QueryFailed(work.id, task.id, error), attempt),
    )


async def write_report(context: WorkflowContext, work: Work, task: Task, report: Report) -> None:
    """Let the agent write the report. May be repeated. An error is recorded as ``ReportFailed``."""
    if context.delivered is not None:
        context.delivered.add((task.id, task.attempt))
    attempt = task.attempt
    await context.call_external(
        f"the report of task {task.id} could not be begun",
        lambda: context.agents.write_report(work, task, report),
        lambda error: workflow_event(work.workflow_id, ReportFailed(report.id, task.id, error), attempt),
    )


async def complete_task(context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, work: Work, task: Task) -> None:
    """Complete a task, then send the next task's query or complete the Work."""
    task.complete()
    following = await unit.tx.works.next_task(work)
    if following is None:
        work.complete()
    unit.record(workflow.id, TaskCompleted(work.id, task.id), task.attempt)
    unit.record(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
    if following is None:
        unit.record(workflow.id, WorkCompleted(work.id, workflow.id), work.attempt)
    await unit.tx.works.save(work)
    if following is not None:
        await continue_task(context, unit, workflow, work, following)


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────────


def may_be_alive(work: Work) -> bool:
    """Return whether the agent of a Work may be running."""
    return work.agent_status in _ALIVE_STATUSES


async def stop_agents(context: WorkflowContext, works: Iterable[Work]) -> None:
    """Stop the agents of works and wait until they are gone. Call it outside any transaction."""
    for work in works:
        if may_be_alive(work):
            await context.agents.stop(work.id)


async def requeue_dead_events(context: WorkflowContext, workflow_id: str) -> None:
    """Requeue the workflow's dead events: the events behind them wait for them."""
    bus = context.store.bus
    dead = await bus.dead(STREAM, _MAX_DEAD_EVENTS)
    await bus.requeue(STREAM, [item.event_id for item in dead if item.envelope.aggregate_id == workflow_id])


async def pause_works(unit: UnitOfWork, workflow: Workflow, works: Iterable[Work], *, stopped: bool = False) -> None:
    """Pause the running works; with ``stopped``, also record that all their agents are stopped."""
    for work in works:
        if work.status is WorkStatus.RUNNING:
            work.pause()
            workflow.work_changed(work.id, work.status)
        elif not (stopped and may_be_alive(work)):
            continue
        if stopped:
            work.agent_stopped()
        await unit.tx.works.save(work)


async def halt_after_failure(
    context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, work: Work, reason: str, *, fail: bool
) -> None:
    """Pause or fail the workflow because a Work failed, and stop the works that run beside it."""
    unit.record(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
    await halt(context, unit, workflow, reason, fail=fail)


async def halt(context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, reason: str, *, fail: bool) -> None:
    """Pause or fail the workflow; its agents are stopped after the commit."""
    works = await unit.tx.works.of_workflow(workflow.id)
    running = [work for work in works if may_be_alive(work) or work.agent_status is AgentStatus.ERROR]
    await pause_works(unit, workflow, works)
    if fail:
        workflow.fail(reason)
        unit.record(workflow.id, WorkflowFailed(workflow.id, reason))
    else:
        workflow.pause(reason)
        unit.record(workflow.id, WorkflowPaused(workflow.id))
    await unit.tx.workflows.save(workflow)
    for work in running:
        unit.after_commit(lambda work=work: stop_agent(context, work))  # type: ignore[misc]


async def stop_agent(context: WorkflowContext, left: Work) -> None:
    """Stop the agent of a Work that no longer runs, and record that. May be repeated."""

    async def stop() -> None:
        await context.agents.stop(left.id)
        async with context.store.transaction() as tx:
            work = await tx.works.find_at_work(left.id)
            if work is not None and work.status is not WorkStatus.RUNNING and may_be_alive(work):
                work.agent_stopped()
                await tx.works.save(work)

    await context.call_external(f"the agent of work {left.id} could not be stopped", stop)
