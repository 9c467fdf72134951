"""What the status of a workflow means, and which command helps, for those who asked for what it does not allow."""

from __future__ import annotations

from shlex import quote
from typing import Final

from kingdom.workflow.domain.statuses import WorkflowStatus

_MEANINGS: Final = {
    WorkflowStatus.CREATED: ("it was not started yet", "start {name} starts it"),
    WorkflowStatus.PREPARING: ("its worktrees are being made", "watch {name} shows it"),
    WorkflowStatus.READY: ("it is prepared, but not started yet", "start {name} starts it"),
    WorkflowStatus.RUNNING: ("it is at work", "pause {name} stops it"),
    WorkflowStatus.PAUSED: ("it has stopped and can go on", "resume {name} continues it"),
    WorkflowStatus.RESUMING: ("it is being resumed", "watch {name} shows it"),
    WorkflowStatus.COMPLETED: ("it is done", "follow-up {name} TEXT has its agent do more"),
    WorkflowStatus.FAILED: ("it stopped at an error", "resume {name} --retry tries again"),
    WorkflowStatus.CANCELLED: (
        "it is over for good",
        "fork {name} --from CHECKPOINT makes a new one that goes on from a checkpoint of it",
    ),
}
_PARTICIPLES: Final = {
    WorkflowStatus.PREPARING: "started",
    WorkflowStatus.RUNNING: "started",
    WorkflowStatus.PAUSED: "paused",
    WorkflowStatus.RESUMING: "resumed",
    WorkflowStatus.CANCELLED: "cancelled",
}


def refusal(name: str, status: WorkflowStatus, cannot: str) -> str:
    """Return why a workflow ``cannot`` do or take something, such as ``cannot be paused``, and what helps."""
    meaning, command = _MEANINGS[status]
    return f"workflow {name} {cannot}: {meaning} ({status}); kingdom workflow {command.format(name=quote(name))}"


def transition_refusal(name: str, status: WorkflowStatus, wanted: WorkflowStatus) -> str:
    """Return why a workflow cannot change its status, and what helps."""
    participle = _PARTICIPLES.get(wanted)
    return refusal(name, status, f"cannot be {participle}" if participle else f"cannot become {wanted}")
