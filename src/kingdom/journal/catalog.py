"""The internal events: every type there is, who emits it, and what it carries.

The only list in code. docs/reference/internal-events.md is written from it.
"""

from __future__ import annotations

from typing import Final

from kingdom.journal.registry import CATALOG, GENERAL, EventData, Number, event

SENTINEL, KING, ENVOY, CHAMBERLAIN, SYSTEM = "sentinel", "king", "envoy", "chamberlain", "system"

CATEGORIES: Final = {
    "event": "An external event was seen, and what became of it.",
    "task": "The life of a task.",
    "soldier": "The life of a soldier, one run of an agent.",
    "system": "The state of the whole.",
    "recovery": "What was mended or tidied up without being asked.",
    "message": "Messages to people, and their answers.",
}


@event("event.detected", by=(SENTINEL, ENVOY), meaning="a new external event was found at its source")
class EventDetected(EventData):
    """A watcher, or the envoy listening to Slack, found something new."""

    event_id: str
    source: str
    event_type: str


@event("event.dispatched", by=(KING,), meaning="the event became a task and was given to a general")
class EventDispatched(EventData):
    """An event became a task."""

    event_id: str
    task_id: str
    target_general: str


@event("event.discarded", by=(KING,), meaning="no general takes events of this kind; the event was closed")
class EventDiscarded(EventData):
    """An event nobody handles."""

    event_id: str
    event_type: str
    reason: str


@event("task.created", by=(KING,), meaning="the king wrote a new task")
class TaskCreated(EventData):
    """A task exists."""

    task_id: str
    event_type: str
    target_general: str
    priority: str


@event("task.started", by=(GENERAL,), meaning="a general took the task up")
class TaskStarted(EventData):
    """A task is being worked on."""

    task_id: str


@event("task.completed", by=(GENERAL,), meaning="the general reported the final result")
class TaskCompleted(EventData):
    """A task ended well."""

    task_id: str
    status: str
    duration_seconds: Number


@event("task.failed", by=(GENERAL,), meaning="the task failed and its retries are spent")
class TaskFailed(EventData):
    """A task ended badly."""

    task_id: str
    error: str
    retry_count: int


@event("task.needs_human", by=(GENERAL,), meaning="the task waits for a person's decision")
class TaskNeedsHuman(EventData):
    """A task asks a question."""

    task_id: str
    question: str


@event("task.resumed", by=(KING,), meaning="a person answered, and the work goes on as a new task")
class TaskResumed(EventData):
    """A task goes on after an answer."""

    task_id: str
    original_task_id: str


@event("soldier.spawned", by=(GENERAL,), meaning="a general started a soldier")
class SoldierSpawned(EventData):
    """A soldier runs."""

    task_id: str
    soldier_id: str


@event("soldier.completed", by=(GENERAL,), meaning="the soldier left a result and ended by itself")
class SoldierCompleted(EventData):
    """A soldier is done."""

    task_id: str
    soldier_id: str
    status: str


@event("soldier.timeout", by=(GENERAL,), meaning="the soldier ran longer than it may")
class SoldierTimeout(EventData):
    """A soldier took too long."""

    task_id: str
    soldier_id: str
    timeout_seconds: Number


@event("soldier.killed", by=(CHAMBERLAIN,), meaning="a soldier that nobody waits for was ended by force")
class SoldierKilled(EventData):
    """A soldier was ended by force."""

    soldier_id: str
    reason: str


@event("system.health_changed", by=(CHAMBERLAIN,), meaning="the health level changed")
class SystemHealthChanged(EventData):
    """Green, yellow, orange or red became another of them."""

    from_: str
    to: str
    reason: str


@event("system.heartbeat_missed", by=(CHAMBERLAIN,), meaning="a role's heartbeat is older than it may be")
class SystemHeartbeatMissed(EventData):
    """A role gave no sign of life."""

    target: str
    last_seen: str | None  # null: the role never wrote one
    threshold_seconds: Number


@event("system.session_orphaned", by=(CHAMBERLAIN,), meaning="a soldier is on record, but its session is gone")
class SystemSessionOrphaned(EventData):
    """A soldier vanished."""

    soldier_id: str
    task_id: str | None  # null: the record does not name one


@event("system.resource_warning", by=(CHAMBERLAIN,), meaning="a resource is over its threshold")
class SystemResourceWarning(EventData):
    """Processor, memory, disk or the like runs short."""

    metric: str
    value: Number
    threshold: Number


@event("system.token_status_changed", by=(CHAMBERLAIN,), meaning="the token budget's status changed")
class SystemTokenStatusChanged(EventData):
    """Ok, warning or critical became another of them."""

    from_: str
    to: str
    daily_cost_usd: str  # text with two decimals, as 215.40: no binary fraction comes near money


@event("system.token_budget_reset", by=(CHAMBERLAIN,), meaning="a new day began with an unspent token budget")
class SystemTokenBudgetReset(EventData):
    """Midnight."""

    date: str
    previous_cost: str


@event("system.startup", by=(SYSTEM,), meaning="the whole system started")
class SystemStartup(EventData):
    """Everything starts."""

    version: str


@event("system.shutdown", by=(SYSTEM,), meaning="the whole system stopped")
class SystemShutdown(EventData):
    """Everything stops."""

    reason: str


@event("recovery.session_restarted", by=(CHAMBERLAIN,), meaning="a dead role was started again")
class RecoverySessionRestarted(EventData):
    """A role is back."""

    target: str
    pid: int


@event("recovery.session_killed", by=(CHAMBERLAIN,), meaning="an orphaned or over-age session was ended by force")
class RecoverySessionKilled(EventData):
    """A session was ended by force."""

    soldier_id: str
    reason: str


@event("recovery.log_rotated", by=(CHAMBERLAIN,), meaning="a log file was closed and a new one begun")
class RecoveryLogRotated(EventData):
    """A log was rotated."""

    file: str
    size_mb: Number


@event("recovery.files_cleaned", by=(CHAMBERLAIN,), meaning="files past their retention were removed")
class RecoveryFilesCleaned(EventData):
    """Old files are gone."""

    deleted_count: int


@event("recovery.sessions_cleaned", by=(CHAMBERLAIN,), meaning="ended sessions were taken off the record")
class RecoverySessionsCleaned(EventData):
    """The list of sessions is tidy."""

    removed_count: int


@event("message.sent", by=(ENVOY,), meaning="a message went out")
class MessageSent(EventData):
    """Somebody was told."""

    msg_id: str
    task_id: str | None  # null: a report or an alert belongs to no task
    channel: str


@event("message.human_response", by=(ENVOY,), meaning="a person answered in a thread")
class MessageHumanResponse(EventData):
    """Somebody answered."""

    task_id: str
    thread_ts: str


assert {spec.category for spec in CATALOG.values()} == set(CATEGORIES), (
    "every category has types, every type a category"
)
