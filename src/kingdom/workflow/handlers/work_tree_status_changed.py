"""WorkTreeCreated, WorkTreeFailed, WorkTreePendingRelease: the workflow knows the states of its worktrees."""

from __future__ import annotations

from typing import ClassVar

from kingdom.workflow.domain.events import WorkTreeCreated, WorkTreeFailed, WorkTreePendingRelease
from kingdom.workflow.domain.statuses import WorkTreeStatus
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.parts import Step


class WorkTreeStatusChangedHandler(Handler):
    """Updates the workflow's ``work_tree_statuses``, to what the worktree is now."""

    view: ClassVar[bool] = True

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Note the state of the worktree."""
        event = news.event
        assert isinstance(event, (WorkTreeCreated, WorkTreeFailed, WorkTreePendingRelease))
        workflow = await step.tx.workflows.find(event.workflow_id)
        tree = await step.tx.work_trees.find(event.work_tree_id)
        if workflow is None or tree is None:
            return self.refuse(news, "it is gone")
        if tree.work_id is None and tree.status is not WorkTreeStatus.RELEASED:  # a Work's own trees are its own affair
            workflow.work_tree_changed(tree.git_id, tree.status)
            await step.tx.workflows.save(workflow)
        return None
