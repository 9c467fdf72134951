"""Land completed workflows, and try again while a remote is away.

A try that fails sends the next one as a command that is due later, in the transaction that notes why. So the wait
outlives the engine, however that ends.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kingdom.bus import RetryPolicy
from kingdom.workflow.commands import COMMAND_STREAM, land_again
from kingdom.workflow.context import UnitOfWork, WorkflowContext
from kingdom.workflow.domain.events import WorkflowNotLanded
from kingdom.workflow.domain.landing import LandAgain

if TYPE_CHECKING:
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import NotLanded

_PAUSES: Final = RetryPolicy(base=60, factor=2, cap=900, jitter=0.1)  # between two tries


async def end_landing(
    context: WorkflowContext, unit: UnitOfWork, workflow: Workflow, problem: NotLanded | None
) -> None:
    """Note how the landing of a workflow ended; if a remote was away, have it tried again later."""
    tries = 1 if workflow.land_again is None else workflow.land_again.tries + 1
    again, reason = None, None
    if problem is not None and problem.away:
        again = LandAgain(context.clock() + timedelta(seconds=_PAUSES.delay(tries)), tries)
        reason = f"not landed yet, it is tried again: {problem.reason}"
        await unit.tx.publish(COMMAND_STREAM, land_again(workflow.id, tries, again.at))
    workflow.end_landing(again, reason)
    await unit.tx.workflows.save(workflow)
    if problem is not None:
        at = None if again is None else again.at.isoformat()
        unit.record(workflow.id, WorkflowNotLanded(workflow.id, problem.reason, at))


async def land_workflow_again(context: WorkflowContext, workflow_id: str, *, tries: int) -> None:
    """Land a workflow that waits for a remote, after this many tries; nothing happens if it does not wait any more."""
    async with context.store.reading() as tx:
        workflow = await tx.workflows.find_alone(workflow_id)
    if context.land is None or not _waits(workflow, tries):
        return
    problem = await context.land(workflow_id, patient=False)  # without the lock: it may take long; cancel must work
    async with context.locks.of(workflow_id), context.unit_of_work() as unit:
        workflow = await unit.tx.workflows.find_alone(workflow_id)
        if workflow is not None and _waits(workflow, tries):
            await end_landing(context, unit, workflow, problem)


async def give_up_landing(context: WorkflowContext, workflow_id: str) -> bool:
    """Do not try again to land a workflow; return False if it does not wait for that. Needs the workflow's lock."""
    async with context.unit_of_work() as unit:
        workflow = await unit.tx.workflows.get(workflow_id)
        if workflow.land_again is None:
            return False
        workflow.end_landing()
        await unit.tx.workflows.save(workflow)
        unit.record(workflow_id, WorkflowNotLanded(workflow_id, "a person cancelled it"))
    return True


def _waits(workflow: Workflow | None, tries: int) -> bool:
    return workflow is not None and workflow.land_again is not None and workflow.land_again.tries == tries
