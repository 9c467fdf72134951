"""WorkCompleted: what the Work left becomes a checkpoint, then the next Work starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kingdom.gitops import GitError
from kingdom.workflow.domain.events import WorkCompleted
from kingdom.workflow.domain.resources import Committed
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Parts, Step
from kingdom.workflow.services.checkpoint import CheckpointService
from kingdom.workflow.services.halting import HaltingService, may_be_alive
from kingdom.workflow.usecases.start_next_work import StartNextWork


@dataclass(frozen=True, slots=True)
class _Made:
    checkpoint_id: str | None  # None: it could not be made
    commits: dict[str, Committed] = field(default_factory=dict)
    error: str = ""


class WorkCompletedHandler(Handler):
    """Makes a checkpoint. The commits are made before the transaction; a repetition finds them again."""

    outside: ClassVar[bool] = True

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._checkpoints = CheckpointService(parts)
        self._halting = HaltingService(parts)
        self._start_next_work = StartNextWork(parts)

    async def before(self, news: News) -> object:
        """Note what is about to be made, make sure that nobody writes any more, then commit."""
        event = news.event
        assert isinstance(event, WorkCompleted)
        async with self.parts.store.transaction() as tx:
            workflow = await tx.workflows.find(event.workflow_id)
            work = await tx.works.find(event.work_id)
            if workflow is None or work is None or workflow.is_over:
                return None
            attempt = work.attempt if news.attempt is None else news.attempt
            intent = await self._checkpoints.intend(tx, work, attempt)
        if may_be_alive(work):
            await self.parts.agents.stop(work.id)
        if intent is None:
            return None
        try:
            return _Made(intent.point.id, await self._checkpoints.commit(intent))
        except GitError as error:
            return _Made(None, error=str(error))

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Record the checkpoint and go on, or pause where the plan says so."""
        event = news.event
        assert isinstance(event, WorkCompleted)
        workflow = await step.tx.workflows.find(event.workflow_id)
        work = await self.work_of(step, news, event.work_id)
        if workflow is None or work is None or not isinstance(made, _Made):
            return None
        work.agent_stopped()
        await step.tx.works.save(work)
        if made.checkpoint_id is None:
            if workflow.status is WorkflowStatus.RUNNING:
                reason = f"what work {work.name} left could not be committed: {made.error}"
                await self._halting.halt(step, workflow, reason, fail=workflow.on_failure == "fail")
            return None
        await self._checkpoints.finish(step, made.checkpoint_id, made.commits)
        if work.pause_after and workflow.status is WorkflowStatus.RUNNING and workflow.review is None:
            workflow.review = f"review after {work.name}"
            await step.tx.workflows.save(workflow)
        return await self._start_next_work.execute(step, workflow)
