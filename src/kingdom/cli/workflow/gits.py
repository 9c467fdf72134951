"""Git as the workflows of a place use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.cli.workflow.session import now

if TYPE_CHECKING:
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.home import WorkflowHome


def git_service(place: WorkflowHome) -> GitopsService:
    """The clones and worktrees below a place."""
    from kingdom.gitops import Git
    from kingdom.workflow.adapters.git_service import GitopsService

    return GitopsService(Git(), place.root, clock=now)
