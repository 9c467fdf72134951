"""The catalog of internal events: every type, who emits it, and the fields of its data.

This is the only list. docs/reference/internal-events.md is generated from it (``scripts/journal-reference``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeVar, cast, dataclass_transform, get_args, get_type_hints

from kingdom.journal.errors import InvalidEvent

GENERAL: Final = "general"  # stands for every general; in a line each has its own name, gen-<domain>
Number = int | float

_GENERAL_NAME: Final = re.compile(r"gen-[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WORDS: Final[Mapping[type, str]] = {str: "text", int: "a whole number", float: "a number", type(None): "null"}

D = TypeVar("D", bound="EventData")


@dataclass(frozen=True, slots=True)
class DataField:
    """A field of an event's data: its name in Python, its key in JSON, and its allowed types."""

    name: str
    key: str
    kinds: tuple[type, ...]

    @property
    def words(self) -> str:
        """The allowed types in words."""
        kinds = [kind for kind in self.kinds if not (kind is int and float in self.kinds)]
        return " or ".join(_WORDS[kind] for kind in kinds)

    def check(self, value: object, event_type: str) -> None:
        """Raise :class:`InvalidEvent` when ``value`` has another type."""
        if isinstance(value, bool) or not isinstance(value, self.kinds):
            raise InvalidEvent(f"{event_type}: {self.key} must be {self.words}, not {value!r:.80}")


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of event."""

    name: str
    actors: tuple[str, ...]
    meaning: str
    fields: tuple[DataField, ...]
    make: type[EventData]

    @property
    def category(self) -> str:
        """The part of its name before the dot."""
        return self.name.partition(".")[0]

    def allows(self, actor: str) -> bool:
        """Tell whether this actor may emit it."""
        return actor in self.actors or (GENERAL in self.actors and _GENERAL_NAME.fullmatch(actor) is not None)

    def actor_or_error(self, actor: str | None) -> str:
        """Return the actor to record: the one given, or the only one allowed. Raises :class:`InvalidEvent`."""
        if actor is None and len(self.actors) == 1 and self.actors[0] != GENERAL:
            return self.actors[0]
        if isinstance(actor, str) and self.allows(actor):
            return actor
        names = " or ".join("gen-<name>" if name == GENERAL else name for name in self.actors)
        raise InvalidEvent(f"{self.name}: actor must be {names}, not {actor!r:.80}")

    def data_from(self, values: Mapping[str, Any]) -> EventData:
        """Make typed data of JSON values. Raises :class:`InvalidEvent` for missing, unknown or invalid fields."""
        named = {field.key: field.name for field in self.fields}
        if named.keys() != values.keys():
            missing, unknown = sorted(named.keys() - values.keys()), sorted(values.keys() - named.keys(), key=str)
            wrong = [f"without {', '.join(missing)}"] if missing else []
            wrong += [f"with unknown {', '.join(map(str, unknown))}"] if unknown else []
            raise InvalidEvent(f"{self.name}: data {' and '.join(wrong)}; its fields are {', '.join(named)}")
        return self.make(**{named[key]: value for key, value in values.items()})


class EventData:
    """Base class of the data of every event type. The constructor checks the fields."""

    __slots__ = ()
    spec: ClassVar[EventType]

    def __post_init__(self) -> None:
        for field in self.spec.fields:
            value = getattr(self, field.name)
            if type(value) not in field.kinds:
                field.check(value, self.spec.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the data by JSON key, in the order of the catalog."""
        return {field.key: getattr(self, field.name) for field in self.spec.fields}


CATALOG: Final[dict[str, EventType]] = {}  # every type by name


@dataclass_transform(frozen_default=True)
def event(name: str, *, by: tuple[str, ...], meaning: str) -> Callable[[type[D]], type[D]]:
    """Declare an event type: make the class a frozen dataclass and add it to the catalog."""

    def declare(cls: type[D]) -> type[D]:
        made = dataclass(frozen=True, slots=True)(cls)
        hints = get_type_hints(made)
        made.spec = EventType(
            name=name,
            actors=by,
            meaning=meaning,
            # A key that is a Python keyword (from) has an underscore appended to its name.
            fields=tuple(
                DataField(item.name, item.name.rstrip("_"), _kinds(hints[item.name]))
                for item in fields(cast(Any, made))
            ),
            make=made,
        )
        assert name not in CATALOG, f"{name} is declared twice"
        CATALOG[name] = made.spec
        return made

    return declare


def event_type(name: str) -> EventType:
    """Return the type called ``name``. Raises :class:`InvalidEvent` with similar names."""
    try:
        return CATALOG[name]
    except (KeyError, TypeError):
        near = difflib.get_close_matches(str(name), CATALOG, n=3) or list(CATALOG)
        raise InvalidEvent(f"there is no internal event {name!r:.80}; allowed: {', '.join(near)}") from None


def general_actor(name: str) -> str:
    """Return the name of a general as an actor. The king uses it, too, where it ends a task for its general."""
    return name if name.startswith("gen-") else f"gen-{name}"


def _kinds(hint: Any) -> tuple[type, ...]:
    return get_args(hint) or (hint,)


SENTINEL, KING, ENVOY, CHAMBERLAIN, SYSTEM = "sentinel", "king", "envoy", "chamberlain", "system"
WORKFLOW: Final = "workflow"  # the engine of workflows in the home of a court

CATEGORIES: Final = {
    "event": "External events: found, dispatched or discarded.",
    "task": "The life cycle of a task.",
    "soldier": "The life cycle of a soldier, which is one run of an agent.",
    "system": "The state of the whole court.",
    "recovery": "Automatic repair and cleanup.",
    "message": "Messages to people, and their replies.",
}


@event(
    "event.detected",
    by=(SENTINEL, ENVOY, KING),
    meaning="a new external event: found at its source, given by a person, or seen by the king as a file in the queue",
)
class EventDetected(EventData):
    event_id: str
    source: str
    event_type: str


@event("event.dispatched", by=(KING,), meaning="the event became a task, or changed one, of this general")
class EventDispatched(EventData):
    event_id: str
    task_id: str
    target_general: str


@event("event.discarded", by=(KING,), meaning="no general takes events of this kind; the event was closed")
class EventDiscarded(EventData):
    event_id: str
    event_type: str
    reason: str


@event("task.created", by=(KING,), meaning="the king wrote a new task")
class TaskCreated(EventData):
    task_id: str
    event_type: str
    target_general: str
    priority: str


@event("task.started", by=(GENERAL,), meaning="a general took the task up")
class TaskStarted(EventData):
    task_id: str


@event("task.completed", by=(GENERAL,), meaning="the general reported the final result")
class TaskCompleted(EventData):
    task_id: str
    status: str
    duration_seconds: Number


@event("task.failed", by=(GENERAL,), meaning="the task failed and its retries are spent")
class TaskFailed(EventData):
    task_id: str
    error: str
    retry_count: int


@event("task.cancelled", by=(GENERAL,), meaning="a person cancelled the task; it counts as neither done nor failed")
class TaskCancelled(EventData):
    task_id: str
    reason: str


@event("task.not_landed", by=(GENERAL,), meaning="what the task committed was not brought to its remote")
class TaskNotLanded(EventData):
    task_id: str
    reason: str


@event("task.needs_human", by=(GENERAL,), meaning="the task waits for a person's decision")
class TaskNeedsHuman(EventData):
    task_id: str
    question: str


@event("task.resumed", by=(KING,), meaning="a person answered, and the work goes on as a new task")
class TaskResumed(EventData):
    task_id: str
    original_task_id: str


@event("soldier.spawned", by=(GENERAL,), meaning="a general started a soldier")
class SoldierSpawned(EventData):
    task_id: str
    soldier_id: str


@event("soldier.completed", by=(GENERAL,), meaning="the soldier left a result and ended by itself")
class SoldierCompleted(EventData):
    task_id: str
    soldier_id: str
    status: str


@event("soldier.ended", by=(GENERAL,), meaning="the soldier ended without a result; the status says why")
class SoldierEnded(EventData):
    task_id: str
    soldier_id: str
    status: str


@event("soldier.timeout", by=(GENERAL,), meaning="the soldier ran longer than it may")
class SoldierTimeout(EventData):
    task_id: str
    soldier_id: str
    timeout_seconds: Number


@event("soldier.refused", by=(GENERAL, WORKFLOW), meaning="the sandbox refused something that the soldier tried")
class SoldierRefused(EventData):
    task_id: str
    soldier_id: str
    reason: str


@event("soldier.killed", by=(CHAMBERLAIN,), meaning="a soldier that nobody waits for was ended by force")
class SoldierKilled(EventData):
    soldier_id: str
    reason: str


@event("system.health_changed", by=(CHAMBERLAIN,), meaning="the health level changed")
class SystemHealthChanged(EventData):
    from_: str
    to: str
    reason: str


@event("system.heartbeat_missed", by=(CHAMBERLAIN,), meaning="a role's heartbeat is older than it may be")
class SystemHeartbeatMissed(EventData):
    target: str
    last_seen: str | None  # null: the role never wrote one
    threshold_seconds: Number


@event("system.session_orphaned", by=(CHAMBERLAIN,), meaning="a soldier is on record, but its session is gone")
class SystemSessionOrphaned(EventData):
    soldier_id: str
    task_id: str | None  # null: the record does not name one


@event("system.resource_warning", by=(CHAMBERLAIN,), meaning="a resource is over its threshold")
class SystemResourceWarning(EventData):
    metric: str
    value: Number
    threshold: Number


@event(
    "system.document_invalid", by=(CHAMBERLAIN,), meaning="a document of a queue could not be used and was set aside"
)
class SystemDocumentInvalid(EventData):
    file: str
    reason: str


@event("system.token_status_changed", by=(CHAMBERLAIN,), meaning="the token budget's status changed")
class SystemTokenStatusChanged(EventData):
    from_: str
    to: str
    daily_cost_usd: str  # text with two decimals, as 215.40: no binary fraction comes near money


@event("system.token_budget_reset", by=(CHAMBERLAIN,), meaning="a new day began with an unspent token budget")
class SystemTokenBudgetReset(EventData):
    date: str
    previous_cost: str


@event("system.general_disabled", by=(ENVOY,), meaning="a person disabled a general: it starts nothing")
class SystemGeneralDisabled(EventData):
    general: str
    user: str


@event("system.general_enabled", by=(ENVOY,), meaning="a person enabled a general again")
class SystemGeneralEnabled(EventData):
    general: str
    user: str


@event(
    "system.person_acted",
    by=(ENVOY,),
    meaning="a person changed something through the API, the dashboard or MCP; the action is the operation of the API",
)
class SystemPersonActed(EventData):
    user: str
    action: str
    subject: str  # the id of what it was done to; empty if there is none


@event("system.startup", by=(SYSTEM,), meaning="the whole system started")
class SystemStartup(EventData):
    version: str


@event("system.shutdown", by=(SYSTEM,), meaning="the whole system stopped")
class SystemShutdown(EventData):
    reason: str


@event("recovery.session_restarted", by=(CHAMBERLAIN,), meaning="a dead role was started again")
class RecoverySessionRestarted(EventData):
    target: str
    pid: int


@event("recovery.session_killed", by=(CHAMBERLAIN,), meaning="an orphaned or over-age session was ended by force")
class RecoverySessionKilled(EventData):
    soldier_id: str
    reason: str


@event("recovery.log_rotated", by=(CHAMBERLAIN,), meaning="a log file was closed and a new one begun")
class RecoveryLogRotated(EventData):
    file: str
    size_mb: Number


@event("recovery.files_cleaned", by=(CHAMBERLAIN,), meaning="files past their retention were removed")
class RecoveryFilesCleaned(EventData):
    deleted_count: int


@event("recovery.sessions_cleaned", by=(CHAMBERLAIN,), meaning="ended sessions were taken off the record")
class RecoverySessionsCleaned(EventData):
    removed_count: int


@event("message.sent", by=(ENVOY,), meaning="a message went out")
class MessageSent(EventData):
    msg_id: str
    task_id: str | None  # null: a report or an alert belongs to no task
    channel: str


@event("message.human_response", by=(ENVOY,), meaning="a person answered in a thread")
class MessageHumanResponse(EventData):
    task_id: str
    thread_ts: str


assert {spec.category for spec in CATALOG.values()} == set(CATEGORIES), (
    "every category has types, every type a category"
)
