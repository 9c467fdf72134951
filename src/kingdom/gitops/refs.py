"""The names of our refs."""

from __future__ import annotations

from typing import Final

from kingdom.gitops.names import check_id

OURS: Final = "refs/kingdom/"
"""What only we make lies below it: nothing of a remote is fetched there by accident, and nothing there is pruned."""


def checkpoints_of(workflow: str) -> str:
    """The prefix of a workflow's checkpoints."""
    return f"refs/kingdom/checkpoints/{check_id('workflow', workflow)}/"


def checkpoint_ref(workflow: str, checkpoint: str) -> str:
    """The ref that keeps a checkpoint's commit."""
    return checkpoints_of(workflow) + check_id("checkpoint", checkpoint)


def pending_of(workflow: str) -> str:
    """The prefix of a workflow's checkpoints that are prepared and not complete."""
    return f"refs/kingdom/pending/{check_id('workflow', workflow)}/"


def pending_ref(workflow: str, checkpoint: str) -> str:
    """The ref that keeps a prepared checkpoint's commit until it is complete or undone."""
    return pending_of(workflow) + check_id("checkpoint", checkpoint)


def pull_ref(number: int) -> str:
    """The ref that keeps the head of a pull request, as it was fetched last."""
    return f"{OURS}pulls/{number}/head"


def rescues_of(workflow: str) -> str:
    """The prefix of what was rescued from a workflow's worktrees."""
    return f"refs/kingdom/rescue/{check_id('workflow', workflow)}/"


def rescue_ref(workflow: str, name: str) -> str:
    """The ref that keeps one rescue."""
    return rescues_of(workflow) + check_id("rescue", name)
