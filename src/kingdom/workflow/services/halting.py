"""Stopping agents, and workflows that cannot go on."""

from __future__ import annotations

from collections.abc import Iterable

from kingdom.workflow.domain.events import WorkflowFailed, WorkflowPaused, WorkStatusChanged
from kingdom.workflow.domain.statuses import AgentStatus, WorkStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.store.transactions import STREAM

_MOST = 10_000  # dead events that are looked through
_ALIVE = (AgentStatus.STARTING, AgentStatus.RUNNING)


def may_be_alive(work: Work) -> bool:
    """Whether a Work may have an agent that runs."""
    return work.agent_status in _ALIVE


class HaltingService:
    """Brings a workflow to a stop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def stop_agents(self, works: Iterable[Work]) -> None:
        """End the agents of works; on return nothing of them is alive. Outside of any transaction."""
        for work in works:
            if may_be_alive(work):
                await self._parts.agents.stop(work.id)

    async def unpark(self, workflow_id: str) -> None:
        """Have events that could not be handled tried once more: whatever they hold back must go on."""
        bus = self._parts.store.bus
        dead = [item.event_id for item in await bus.dead(STREAM, _MOST) if item.envelope.aggregate_id == workflow_id]
        await bus.requeue(STREAM, dead)

    async def pause_works(
        self, step: Step, workflow: Workflow, works: Iterable[Work], *, stopped: bool = False
    ) -> None:
        """Pause the works that run; ``stopped``: their agents, and all others, are."""
        for work in works:
            if work.status is WorkStatus.RUNNING:
                work.pause()
                workflow.work_changed(work.id, work.status)
            elif not (stopped and may_be_alive(work)):
                continue
            if stopped:
                work.agent_stopped()
            await step.tx.works.save(work)

    async def give_up(self, step: Step, workflow: Workflow, work: Work, reason: str, *, fail: bool) -> None:
        """A Work failed: the workflow pauses or fails, and what runs beside it stops."""
        step.tell(workflow.id, WorkStatusChanged(work.id, workflow.id, work.status), work.attempt)
        await self.halt(step, workflow, reason, fail=fail)

    async def halt(self, step: Step, workflow: Workflow, reason: str, *, fail: bool) -> None:
        """Pause the workflow, or have it fail."""
        works = await step.tx.works.of_workflow(workflow.id)
        running = [work for work in works if may_be_alive(work) or work.agent_status is AgentStatus.ERROR]
        await self.pause_works(step, workflow, works)
        if fail:
            workflow.fail(reason)
            step.tell(workflow.id, WorkflowFailed(workflow.id, reason))
        else:
            workflow.pause(reason)
            step.tell(workflow.id, WorkflowPaused(workflow.id))
        await step.tx.workflows.save(workflow)
        for work in running:
            step.then(lambda work=work: self.stop(work))  # type: ignore[misc]

    async def stop(self, left: Work) -> None:
        """End the agent of a Work that does not run any more, and note it; may be repeated."""

        async def stop() -> None:
            await self._parts.agents.stop(left.id)
            async with self._parts.store.transaction() as tx:
                work = await tx.works.find(left.id)
                if work is not None and work.status is not WorkStatus.RUNNING and may_be_alive(work):
                    work.agent_stopped()
                    await tx.works.save(work)

        await self._parts.outside(f"the agent of work {left.id} could not be stopped", stop)
