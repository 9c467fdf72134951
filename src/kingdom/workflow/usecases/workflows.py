"""Create, fork and modify workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Final

from kingdom.workflow.context import UnitOfWork, WorkflowContext
from kingdom.workflow.domain.events import (
    WorkflowCreated,
    WorkflowGitRefsUpdated,
    WorkflowMcpServerRefsUpdated,
    WorkflowPaused,
    WorkStatusChanged,
    WorkTreePendingRelease,
)
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.plan import (
    Change,
    PlanEditor,
    SetDetails,
    SetGitRefs,
    SetLandPlan,
    SetMcpServerRefs,
    WorkDependencies,
    WorkflowChange,
    work_from,
)
from kingdom.workflow.domain.resources import Checkpoint, GitRef, McpServerRef, WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Report, Work
from kingdom.workflow.domain.workflow import OnFailure, WorkDefinition, Workflow
from kingdom.workflow.errors import InvalidPlan, NameTaken, NotFound, NotModifiable
from kingdom.workflow.store.transactions import WorkflowTransaction
from kingdom.workflow.usecases.resources import (
    checkpoint_counter,
    register_uses,
    release_sources,
    server_ids,
    space_id,
)

_NAMES_COUNTER: Final = "workflow names"
_USING_STATUSES: Final = (WorkflowStatus.READY, WorkflowStatus.PAUSED)  # modifiable, and its uses are registered


async def create_workflow(
    context: WorkflowContext,
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
    land: LandPlan | None = None,
) -> str:
    """Create a workflow from a template and return its id. Arguments override the template's values.

    If another workflow has the name, this one gets a number: ``fix``, ``fix-2``. Queries that use unknown variables
    are a :class:`kingdom.workflow.errors.WorkflowError`.
    A caller that must never create a second one makes the id itself and stores it before the call.
    """
    async with context.unit_of_work() as unit:
        template = await unit.tx.templates.get(template_id)
        workflow = Workflow(
            workflow_id or context.ids.new("wf"),
            name or template.name,
            context.clock(),
            template.id,
            issue_key,
            template.description if description is None else description,
            template.git_refs if git_refs is None else tuple(git_refs),
            template.mcp_server_refs if mcp_server_refs is None else tuple(mcp_server_refs),
            dict(variables or {}),
            on_failure or template.on_failure,
            land=land or template.land,
        )
        await _save_new(context, unit, workflow, template.works)
    return workflow.id


async def create_single_workflow(
    context: WorkflowContext, name: str, work: WorkDefinition, git_refs: Sequence[GitRef], description: str = ""
) -> str:
    """Create a workflow of one Work, without a template, and return its id."""
    async with context.unit_of_work() as unit:
        workflow = Workflow(context.ids.new("wf"), name, context.clock(), None, None, description, tuple(git_refs))
        await _save_new(context, unit, workflow, (work,))
    return workflow.id


async def _save_new(
    context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, plan: Sequence[WorkDefinition]
) -> None:
    workflow.name = await _free_name(unit.tx, workflow.name)
    await _check_repositories(unit.tx, workflow.git_refs)
    works = [work_from(definition, workflow.id, number, context.ids.new) for number, definition in enumerate(plan)]
    context.queries.check(workflow, works, works)
    for work in works:
        workflow.work_changed(work.id, work.status)
        await unit.tx.works.save(work)
    await unit.tx.workflows.save(workflow)
    unit.record(workflow.id, WorkflowCreated(workflow.id))


async def _check_repositories(tx: WorkflowTransaction, refs: Sequence[GitRef]) -> None:
    """Raise :class:`NotFound` for one that is not registered, :class:`InvalidPlan` for two with the same URL.

    Both would share a clone, and a checkpoint has one commit for each clone.
    """
    by_url: dict[str, str] = {}
    for ref in refs:
        git = await tx.gits.get(ref.git_id)
        if git.url in by_url:
            both = git.name if by_url[git.url] == git.name else f"{by_url[git.url]} and {git.name}"
            raise InvalidPlan(f"{git.url} is here twice, as {both}: a workflow can have a repository once")
        by_url[git.url] = git.name


async def _free_name(tx: WorkflowTransaction, name: str) -> str:
    """Return the name, with a number if another workflow has it: people identify workflows by their names."""
    await tx.count(_NAMES_COUNTER)  # its row lock: two transactions at once must not choose the same name
    taken = {label.partition("\n")[0] for label in await tx.workflows.labels(name)}
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
    return next(one for one in names if one.lower() not in taken)


# ── fork ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def fork_workflow(context: WorkflowContext, checkpoint_id: str, *, name: str | None = None) -> str:
    """Create a workflow from a checkpoint of another one, valid or not, and return its id. Its status is CREATED.

    Works done up to the checkpoint are done in the fork as well, with their reports. The fork has its own branches;
    its worktrees start from the checkpoint's commits. The original workflow does not change.
    """
    async with context.store.transaction() as tx:
        point = await tx.checkpoints.get(checkpoint_id)
        if not point.complete:
            raise NotFound(f"checkpoint {checkpoint_id} was never finished: there is nothing to fork from")
        original = await tx.workflows.get(point.workflow_id)
        works = await tx.works.of_workflow(original.id)
        kept = _checkpoints_kept(point, works, await tx.checkpoints.of_workflow(original.id))
        spaces = {space.work_id: space for space in await tx.work_spaces.of_workflow(original.id)}
        reports = await tx.reports.of_workflow(original.id)
        gits = {git_id: await tx.gits.get(git_id) for item in kept.values() for git_id in item.hashes}
    fork = _fork(context, original, point, kept, name)
    copies = {work.id: _copy_work(context, work, fork.id, done=work.id in kept) for work in works}
    folders = {
        work_id: WorkSpace(space_id(copies[work_id]), fork.id, copies[work_id].id, context.files.path(copies[work_id]))
        for work_id in kept
        if work_id in spaces
    }
    for work_id, space in folders.items():
        await context.files.copy(spaces[work_id], space)
    points = _copy_checkpoints(context, fork, copies, kept)
    for own in points:  # hold the commits before recording them: every recorded checkpoint can be reset to
        for git_id in own.hashes:
            await context.git.keep(gits[git_id], own)
    async with context.unit_of_work() as unit:
        fork.name = await _free_name(unit.tx, fork.name)
        await _save_fork(unit, fork, copies, points)
        for work_id, space in folders.items():
            await unit.tx.work_spaces.save(space)
            for report in reports:
                if report.work_id == work_id and report.file_path:
                    await _copy_report(context, unit, report, copies[work_id], works, spaces[work_id], space)
        unit.record(fork.id, WorkflowCreated(fork.id))
    return fork.id


def _fork(
    context: WorkflowContext, original: Workflow, point: Checkpoint, kept: dict[str, Checkpoint], name: str | None
) -> Workflow:
    """Return the new workflow; its worktrees start from the checkpoint's commits, which contain the earlier ones."""
    hashes: dict[str, str] = {}
    for item in (*sorted(kept.values(), key=lambda item: item.number), point):
        hashes.update(item.hashes)
    return replace(
        original,
        id=context.ids.new("wf"),
        name=name or f"{original.name}-fork",
        created_at=context.clock(),
        git_refs=tuple(GitRef(ref.git_id, hashes.get(ref.git_id, ref.base)) for ref in original.git_refs),
        variables=dict(original.variables),
        status=WorkflowStatus.CREATED,
        reason=None,
        work_statuses={},
        work_tree_statuses={},
        forked_from=point.id,
        resuming=None,
        review=None,
        prepare_only=False,
        landing=False,
        land_again=None,
        version=0,
    )


def _copy_work(context: WorkflowContext, work: Work, workflow_id: str, *, done: bool) -> Work:
    copy = deepcopy(work)
    copy.id, copy.workflow_id, copy.version = context.ids.new("work"), workflow_id, 0
    for task in copy.tasks:
        task.id = context.ids.new("task")
    if not done:
        copy.restart()
        copy.attempt = 1
        for task in copy.tasks:
            task.attempt = 1
    copy.apart = False
    return copy


def _copy_checkpoints(
    context: WorkflowContext, fork: Workflow, copies: dict[str, Work], kept: dict[str, Checkpoint]
) -> list[Checkpoint]:
    """Return the checkpoints of the fork: the same commits under new ids."""
    made = []
    for work_id, point in sorted(kept.items(), key=lambda pair: pair[1].number):
        work, point_id = copies[work_id], context.ids.new("cp")
        work.checkpointed(point_id)
        own = replace(point, id=point_id, workflow_id=fork.id, work_id=work.id, work_attempt=work.attempt)
        made.append(replace(own, valid=True, version=0))
    return made


async def _save_fork(unit: UnitOfWork, fork: Workflow, copies: dict[str, Work], points: list[Checkpoint]) -> None:
    for work in copies.values():
        fork.work_changed(work.id, work.status)
        await unit.tx.works.save(work)
    await unit.tx.workflows.save(fork)
    for point in points:
        point.number = await unit.tx.count(checkpoint_counter(fork.id))
        await unit.tx.checkpoints.save(point)


async def _copy_report(
    context: WorkflowContext,
    unit: UnitOfWork,
    report: Report,
    work: Work,
    works: list[Work],
    source: WorkSpace,
    target: WorkSpace,
) -> None:
    original = next(item for item in works if item.id == report.work_id)
    index = next((index for index, task in enumerate(original.tasks) if task.id == report.task_id), None)
    if index is None:
        return
    task = work.tasks[index]
    copy = replace(
        report,
        id=context.ids.new("report"),
        workflow_id=work.workflow_id,
        work_id=work.id,
        task_id=task.id,
        file_path=(report.file_path or "").replace(source.path, target.path, 1),
        version=0,
    )
    task.report_id = copy.id
    await unit.tx.reports.save(copy)
    await unit.tx.works.save(work)


def _checkpoints_kept(point: Checkpoint, works: list[Work], points: list[Checkpoint]) -> dict[str, Checkpoint]:
    """Return the checkpoints of the works that were done at ``point``, by work id: its own and those before it."""
    work = next((item for item in works if item.id == point.work_id), None)
    if work is None:
        raise NotFound(f"the work of checkpoint {point.id} was removed from the plan: it cannot be forked any more")
    before = WorkDependencies(works).before(work)
    earlier = sorted(
        (item for item in points if item.complete and item.number < point.number), key=lambda item: item.number
    )
    return {item.work_id: item for item in earlier if item.work_id in before} | {work.id: point}


# ── modify ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def modify_workflow(context: WorkflowContext, workflow_id: str, changes: Sequence[Change]) -> None:
    """Change what is not done yet in the plan of a workflow that is CREATED, READY, PAUSED, FAILED or COMPLETED.

    Applies all changes or none. One that is COMPLETED needs another Work, and is PAUSED then. Raises
    :class:`kingdom.workflow.errors.NotModifiable`, ``InvalidPlan``, ``NotFound``, or an error for an unknown variable.
    """
    async with context.locks.of(workflow_id), context.unit_of_work() as unit:
        workflow = await unit.tx.workflows.get(workflow_id)
        await change_plan(context, unit, workflow, changes)
        await unit.tx.workflows.save(workflow)


async def change_plan(
    context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, changes: Sequence[Change]
) -> None:
    """Change the plan inside the caller's unit of work, as :func:`modify_workflow` does. The caller saves it."""
    workflow.check_modifiable()
    works = await unit.tx.works.of_workflow(workflow.id)
    before = server_ids(workflow, works)
    editor = PlanEditor(works, workflow.id, context.ids.new)
    editor.apply([item for item in changes if not isinstance(item, WorkflowChange)])
    context.queries.check(workflow, editor.works, [work for work in editor.works if work.id in editor.touched])
    await _save_plan(unit, workflow, editor)
    if workflow.status is WorkflowStatus.COMPLETED:
        _reopen(unit, workflow, editor.works, changes)
    for change in changes:
        if isinstance(change, SetGitRefs):
            await _set_git_refs(unit, workflow, change)
        elif isinstance(change, SetMcpServerRefs):
            added, removed = workflow.change_mcp_server_refs(change.mcp_server_refs)
            unit.record(workflow.id, WorkflowMcpServerRefsUpdated(workflow.id, added, removed))
        elif isinstance(change, SetDetails):
            await _set_details(unit, workflow, change)
        elif isinstance(change, SetLandPlan):
            workflow.land = change.land
            if workflow.land is None and workflow.land_again is not None:
                workflow.end_landing()
    await _change_uses(unit, workflow, editor.works, before)


def _reopen(unit: UnitOfWork, workflow: Workflow, works: Sequence[Work], changes: Sequence[Change]) -> None:
    """Pause a completed workflow that got more works; raise :class:`NotModifiable` if it got none."""
    if any(work.status is not WorkStatus.COMPLETED for work in works):
        workflow.reopen()
        unit.record(workflow.id, WorkflowPaused(workflow.id))
    elif not all(isinstance(change, (SetDetails, SetLandPlan)) for change in changes):
        raise NotModifiable(f"workflow {workflow.name} is COMPLETED: add a work, then it can go on")


async def _set_details(unit: UnitOfWork, workflow: Workflow, change: SetDetails) -> None:
    renamed = change.name.lower() != workflow.name.lower()
    if renamed and await _free_name(unit.tx, change.name) != change.name:
        raise NameTaken(f"another workflow is called {change.name!r}: choose another name")
    workflow.name, workflow.description = change.name, change.description
    await unit.tx.workflows.relabel(workflow)


async def _save_plan(unit: UnitOfWork, workflow: Workflow, editor: PlanEditor) -> None:
    for work in editor.works:
        if work.id not in editor.touched:
            continue
        new = work.version == 0
        await unit.tx.works.save(work)
        workflow.work_changed(work.id, work.status)
        if new:
            unit.record(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
    for work in editor.removed:
        workflow.work_statuses.pop(work.id, None)
        await unit.tx.works.delete(work.id)


async def _set_git_refs(unit: UnitOfWork, workflow: Workflow, change: SetGitRefs) -> None:
    await _check_repositories(unit.tx, change.git_refs)
    trees = await unit.tx.work_trees.of_workflow(workflow.id)
    await _check_bases(unit, workflow, change, trees)
    added, removed = workflow.change_git_refs(change.git_refs)
    for tree in trees:
        if tree.git_id in removed and tree.status not in (WorkTreeStatus.RELEASED, WorkTreeStatus.PENDING_RELEASE):
            tree.mark_for_release()
            await unit.tx.work_trees.save(tree)
            unit.record(workflow.id, WorkTreePendingRelease(tree.id, workflow.id, tree.git_id))
        elif tree.git_id in added and tree.status is WorkTreeStatus.PENDING_RELEASE:
            tree.reclaim()
            await unit.tx.work_trees.save(tree)
    unit.record(workflow.id, WorkflowGitRefsUpdated(workflow.id, added, removed))


async def _check_bases(unit: UnitOfWork, workflow: Workflow, change: SetGitRefs, trees: Sequence[WorkTree]) -> None:
    """Raise :class:`NotModifiable` for another base of a repository whose worktree exists: it would have no effect."""
    made = {tree.git_id for tree in trees if tree.status is WorkTreeStatus.READY}
    before = {ref.git_id: ref.base for ref in workflow.git_refs}
    for ref in change.git_refs:
        if ref.git_id in made and ref.git_id in before and ref.base != before[ref.git_id]:
            git = await unit.tx.gits.get(ref.git_id)
            start = before[ref.git_id] or "the default branch"
            raise NotModifiable(
                f"the worktree of {git.name} exists and started from {start}: for another base create another workflow"
            )


async def _change_uses(unit: UnitOfWork, workflow: Workflow, works: list[Work], before: list[str]) -> None:
    """Update the registered uses. MCP servers are released at once, a repository with its worktree."""
    after = server_ids(workflow, works)
    for server_id in set(after) - set(before):
        await unit.tx.mcp_servers.get(server_id)
    if workflow.status in _USING_STATUSES:
        await register_uses(unit.tx, workflow, works)
        gone = [server_id for server_id in before if server_id not in after]
        await release_sources(unit.tx.mcp_servers, gone, workflow.id)
