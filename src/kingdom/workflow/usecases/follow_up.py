"""Go on in the conversation of a Work with something new: a person's wish, a merge, what came back from a review."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from shlex import quote
from typing import Final

from kingdom.base.text import name_of_text
from kingdom.workflow.adapters.queries import literal_query
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.plan import AddWork, Change, UpdateWork, continuing
from kingdom.workflow.domain.refusals import refusal
from kingdom.workflow.domain.statuses import TaskStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import ResumePlan, Workflow
from kingdom.workflow.errors import NotFound, NotModifiable
from kingdom.workflow.store.transactions import WorkflowTransaction
from kingdom.workflow.usecases.lifecycle import begin_resume, finish_resume
from kingdom.workflow.usecases.steps import requeue_dead_events
from kingdom.workflow.usecases.workflows import change_plan, modify_workflow

FOLLOW_UP_STATUSES: Final = (WorkflowStatus.PAUSED, WorkflowStatus.FAILED, WorkflowStatus.COMPLETED)
_FOLLOW_UP: Final = "follow-up"
_MERGE_QUERY: Final = """\
The branch {branch} of the remote has new commits. Merge them: `git merge {commit}`.

These files conflict: {files}. Resolve each conflict so that both changes keep their purpose; read what the other side
wanted before you decide. Run the tests, then commit the merge. Answer with how you resolved each file.
"""


async def follow_up_workflow(
    context: WorkflowContext, workflow_id: str, text: str, *, work: str | None = None, name: str | None = None
) -> None:
    """Have an agent go on with what a person says, in the same conversation, and resume the workflow.

    A Work that stopped before its end goes on with its task and the text. Behind a Work that is done, a new one is
    added that goes on in its conversation; a review before further works is repeated after the new one. ``work`` is the
    name of the Work: by default the one that stopped, or else the last one that is done and has no branch of its own.
    ``name`` is that of the new Work; the same text under the same name is added once, so the call may be repeated.

    Raises :class:`kingdom.workflow.errors.NotModifiable` if no Work has begun, or while the workflow runs or asks.
    """
    async with context.locks.of(workflow_id):
        async with context.unit_of_work() as unit:
            workflow = await unit.tx.workflows.get(workflow_id)
            if workflow.status is not WorkflowStatus.RESUMING:  # otherwise an outage of the store came in between
                works = await unit.tx.works.of_workflow(workflow_id)
                query = literal_query(text)
                if any(one.name == name and [task.query for task in one.tasks] == [query] for one in works):
                    return  # the call is repeated
                chosen = _chosen_work(workflow, works, work)
                if _has_stopped(chosen):
                    chosen.say(text)
                    await unit.tx.works.save(chosen)
                else:
                    changes = _added_behind(chosen, works, name or _FOLLOW_UP, query)
                    await change_plan(context, unit, workflow, changes)
                await begin_resume(context, unit, workflow, ResumePlan("in place"))
        await requeue_dead_events(context, workflow_id)
        await finish_resume(context, workflow_id)


async def add_merge_work(context: WorkflowContext, workflow_id: str, branch: str, commit: str, files: str) -> str:
    """Add a Work that has the last agent merge a commit and resolve the conflicts; return the name of the Work."""
    async with context.store.reading() as tx:
        works = await tx.works.of_workflow(workflow_id)
    last = max(works, key=lambda work: work.sequence)
    name = _free_work_name(f"merge {branch}".replace("/", "-"), {work.name for work in works})
    query = _MERGE_QUERY.format(branch=branch, commit=commit, files=files)
    await modify_workflow(context, workflow_id, [AddWork(continuing(last, name, query), len(works))])
    return name


async def follow_up_name(tx: WorkflowTransaction, workflow_id: str, text: str) -> str:
    """Return a name for the Work that such a follow-up may add, for :func:`follow_up_workflow`: its first words."""
    taken = {work.name for work in await tx.works.heads(workflow_id)}
    return _free_work_name(name_of_text(text) or _FOLLOW_UP, taken)


def _free_work_name(wanted: str, taken: Collection[str]) -> str:
    """Return a name for a new Work of a plan: the wanted one, or ``wanted 2``, ``wanted 3`` … if it is taken."""
    numbered = (f"{wanted} {number}" for number in range(2, len(taken) + 3))
    return next(one for one in (wanted, *numbered) if one not in taken)


def _added_behind(chosen: Work, works: Sequence[Work], wanted: str, query: str) -> list[Change]:
    """Return the changes that add a Work which goes on in the conversation of one that is done."""
    name = _free_work_name(wanted, {work.name for work in works})
    begun = max(index + 1 for index, work in enumerate(works) if work.status is not WorkStatus.PENDING)
    behind = works[begun:]
    added = replace(continuing(chosen, name, query), pause_after=chosen.pause_after and bool(behind))
    waiting = [other for other in behind if chosen.name in other.after]
    return [AddWork(added, begun), *(UpdateWork(other.id, {"after": (*other.after, name)}) for other in waiting)]


def _chosen_work(workflow: Workflow, works: Sequence[Work], name: str | None) -> Work:
    """Return the Work whose agent goes on; raise :class:`NotModifiable` if none can now."""
    if workflow.status not in FOLLOW_UP_STATUSES:
        raise NotModifiable(refusal(workflow.name, workflow.status, "cannot do more now"))
    if workflow.resuming is not None and workflow.resuming.mode == "reset":
        raise NotModifiable(
            f"workflow {workflow.name} could not go back to a checkpoint: "
            f"kingdom workflow resume {quote(workflow.name)} tries that again"
        )
    if any(work.status is WorkStatus.WAITING for work in works):
        answer = f"kingdom workflow answer {quote(workflow.name)} TEXT"
        raise NotModifiable(f"an agent of workflow {workflow.name} asks a question: answer it first ({answer})")
    if name is not None and name not in {work.name for work in works}:
        raise NotFound(f"workflow {workflow.name} has no work {name!r}: {', '.join(work.name for work in works)}")
    candidates = [work for work in works if name in (None, work.name)]
    if stopped := [work for work in candidates if _has_stopped(work)]:
        if len(stopped) > 1:
            names = ", ".join(work.name for work in stopped)
            raise NotModifiable(f"several works of workflow {workflow.name} have stopped ({names}): name one of them")
        return stopped[0]
    done = [work for work in candidates if work.status is WorkStatus.COMPLETED]
    if not done:
        what = "no work of it" if name is None else f"work {name}"
        raise NotModifiable(
            f"workflow {workflow.name} is {workflow.status}, but {what} has begun: kingdom workflow resume "
            f"{quote(workflow.name)} continues it"
        )
    together = [work for work in done if not work.apart]
    if not together:
        raise NotModifiable(
            f"work {done[-1].name} ran beside others, on a branch of its own: name another work, or add one that "
            "merges these branches"
        )
    return max(together, key=lambda work: work.sequence)


def _has_stopped(work: Work) -> bool:
    """Return whether a Work stopped at one of its tasks, or what they left could not be committed."""
    if work.current_task is None:
        return work.status is WorkStatus.FAILED
    return work.status in (WorkStatus.PAUSED, WorkStatus.FAILED) or (
        work.status is WorkStatus.PENDING and any(task.status is TaskStatus.COMPLETED for task in work.tasks)
    )
