"""Decide which tasks may start now.

A task needs room within the limits of its general and of the court, the consent of every gate (health, budget), and a
subject that no other task works on. What may not start waits; nothing is dropped.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from kingdom.base.files import ChangeDetector, read_object
from kingdom.base.text import one_line
from kingdom.base.times import epoch_seconds
from kingdom.court.king.pending import PRIORITY_RANKS
from kingdom.court.request_threads import SlackThread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.king.cases import Case, Cases
    from kingdom.court.king.pending import PendingEvent, PendingGroup
    from kingdom.court.packages.installed import Generals
    from kingdom.court.queues import IdSequences

STALE_HEALTH_SECONDS: Final = 300.0
_MAX_SAMPLE_IDS: Final = 3
_MAX_REASONS: Final = 50  # that are reported; subjects have a reason each
_PRIORITIES_BY_HEALTH: Final = {
    "green": ("high", "normal", "low"),
    "yellow": ("high", "normal"),
    "orange": ("high",),
    "red": (),
}


class Gate(Protocol):
    """A check before the start of a task."""

    def refusal(self, general: str, priority: str, now: float) -> str | None:
        """Say why a task of this general and priority may not start now, for people; None when it may."""


@runtime_checkable
class ReservingGate(Gate, Protocol):
    """A gate that counts admitted tasks, such as a budget."""

    def reserve(self, task_id: str, general: str, now: float) -> Any:
        """Count a task from its creation on."""

    def release(self, task_id: str) -> Any:
        """Stop counting a task that has ended."""


class HealthGate:
    """Refuses tasks when the machine is overloaded, by the health file that the chamberlain writes.

    Without a file no chamberlain runs, and health counts as green. With a stale or unreadable file the chamberlain may
    be dead, so only urgent tasks start.
    """

    def __init__(self, home: Home) -> None:
        self._path = home.role("chamberlain") / "health.json"
        self._changes = ChangeDetector(self._path)
        self._health: dict[str, Any] = {}

    def refusal(self, general: str, priority: str, now: float) -> str | None:
        level, why = self.level(now)
        return None if priority in _PRIORITIES_BY_HEALTH[level] else f"health is {level}" + (f" ({why})" if why else "")

    def level(self, now: float) -> tuple[str, str]:
        """Return the health level that applies now, and the reason for it."""
        if self._changes.changed():
            self._health = read_object(self._path)
        if not self._changes.found:
            return "green", ""
        level, written = self._health.get("level"), epoch_seconds(self._health.get("ts"))
        if level not in _PRIORITIES_BY_HEALTH or written is None:
            return "orange", f"{self._path.name} is not readable"
        if now - written > STALE_HEALTH_SECONDS and level in ("green", "yellow"):
            return "orange", f"the last {level} is {now - written:.0f} s old"
        return str(level), str(self._health.get("reason") or "")


class Holds:
    """Counts waiting events by reason, for ``kingdom status``."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._samples: dict[str, list[str]] = {}

    def add(self, reason: str, ids: Iterable[str], count: int = 1) -> None:
        """Count events that wait for a reason. Some of ``ids`` are kept as samples."""
        self._counts[reason] = self._counts.get(reason, 0) + count
        samples = self._samples.setdefault(reason, [])
        for event_id in ids:
            if len(samples) >= _MAX_SAMPLE_IDS:
                break
            samples.append(event_id)

    def report(self) -> dict[str, Any]:
        """Return the reasons, most frequent first."""
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        found: dict[str, Any] = {
            reason: {"count": count, "events": self._samples[reason]} for reason, count in ordered[:_MAX_REASONS]
        }
        if others := ordered[_MAX_REASONS:]:
            found[f"{len(others)} more reasons"] = {"count": sum(count for _, count in others), "events": []}
        return found


class TaskIdPool:
    """Ids for new tasks, reserved several at a time: each reservation is a durable write."""

    def __init__(self, sequences: IdSequences) -> None:
        self._sequences = sequences
        self._drawn: deque[str] = deque()
        self._day = ""

    def prefetch(self, count: int) -> None:
        """Reserve ids, so that ``count`` can be taken without another write."""
        missing = count - len(self._drawn)
        if missing > 0:
            drawn = self._sequences.tasks(missing)
            if drawn[0].split("-")[1] != self._day:  # ids of the day before
                self._drawn.clear()
                self._day = drawn[0].split("-")[1]
            self._drawn.extend(drawn)

    def take(self) -> str:
        if not self._drawn:
            self.prefetch(1)
        return self._drawn.popleft()

    def give_back(self, task_id: str) -> None:
        """Return an id that was not used."""
        self._drawn.appendleft(task_id)


class NotAdmitted(Exception):
    """A task may not start now. The message says why."""


class AdmittedEvent(NamedTuple):
    """An event that may start, and the id of its task."""

    pending: PendingEvent
    general: str
    priority: str
    task_id: str


class Admission:
    """Admits tasks, once per tick. An admitted task counts against the limits at once."""

    def __init__(
        self, home: Home, config: SystemConfig, cases: Cases, task_ids: TaskIdPool, gates: Sequence[Gate] = ()
    ) -> None:
        self._max_soldiers = config.concurrency.max_soldiers
        self._cases = cases
        self._task_ids = task_ids
        self._health = HealthGate(home)
        self._gates = gates
        self._reserving = [gate for gate in gates if isinstance(gate, ReservingGate)]
        self._limits: dict[str, int] = {}  # by general
        self._passable: set[str] = set()  # generals whose questions do not hold their subject
        self._now = 0.0
        self._admitted: dict[str, str] = {}  # tasks admitted in this tick, with their generals
        self._admitted_of: Counter[str] = Counter()  # their number, by general
        self._subjects: dict[str, str] = {}  # of tasks admitted in this tick: task and general
        self.holds = Holds()

    def begin(self, generals: Generals, now: float) -> None:
        """Begin a tick: nothing is admitted yet."""
        self._limits = {name: general.manifest.concurrency for name, general in generals.by_name.items()}
        self._passable = {
            name for name, general in generals.by_name.items() if not general.manifest.hold_subject_while_asking
        }
        self._now = now
        self._admitted.clear()
        self._admitted_of.clear()
        self._subjects.clear()
        self.holds = Holds()

    def admit(self, general: str, priority: str, subject: str | None = None, *, continues: str | None = None) -> str:
        """Admit a task and return its id. Raises :class:`NotAdmitted`.

        ``continues`` is the root of the case that the task continues.
        """
        reason = self._capacity_problem(general) or self._health.refusal(general, priority, self._now)
        reason = reason or self._gate_refusal(general, priority) or self._subject_problem(subject, continues)
        if reason is not None:
            raise NotAdmitted(reason)
        return self._admit(general, subject)

    def choose(self, groups: Sequence[PendingGroup], limit: int) -> list[AdmittedEvent]:
        """Admit up to ``limit`` events, most urgent first, then oldest first."""
        ready = []
        for group in groups:
            reason = group.problem or self._capacity_problem(group.general)
            reason = reason or self._health.refusal(group.general, group.priority, self._now)
            if reason is None:
                ready.append(group)
            else:
                self.holds.add(reason, group.events, len(group.events))
        self._task_ids.prefetch(min(limit, self._free, sum(self._startable(group) for group in ready)))
        chosen: list[AdmittedEvent] = []
        for priority in PRIORITY_RANKS:
            self._choose_from([group for group in ready if group.priority == priority], limit, chosen)
        return chosen

    def withdraw(self, task_id: str) -> None:
        """Take back an admission: the task does not start."""
        if (general := self._admitted.pop(task_id, None)) is not None:
            self._admitted_of[general] -= 1
        self._task_ids.give_back(task_id)
        self.release(task_id)

    def reserve(self, case: Case, now: float) -> None:
        """Count the task of a case at the gates."""
        for gate in self._reserving:
            gate.reserve(case.task, case.general, now)

    def release(self, task_id: str) -> None:
        for gate in self._reserving:
            gate.release(task_id)

    @property
    def _free(self) -> int:
        return self._max_soldiers - self._cases.active_count - len(self._admitted)

    def _startable(self, group: PendingGroup) -> int:
        return min(len(group.events), self._limits[group.general] - self._active_of(group.general))

    def _active_of(self, general: str) -> int:
        return self._cases.active_of(general) + self._admitted_of[general]

    def _choose_from(self, groups: list[PendingGroup], limit: int, chosen: list[AdmittedEvent]) -> None:
        seen = [0] * len(groups)
        heads = []
        for number, group in enumerate(groups):
            events = iter(group.events.values())
            first = next(events)
            heads.append((first.position, number, first, events))
        heapq.heapify(heads)
        while heads and len(chosen) < limit:
            _, number, pending, events = heads[0]
            group = groups[number]
            reason = self._capacity_problem(group.general) or self._gate_refusal(group.general, group.priority)
            if reason is not None:
                self.holds.add(reason, [pending.id], len(group.events) - seen[number])
                heapq.heappop(heads)
                continue
            seen[number] += 1
            if taken := self._subject_problem(pending.works_on):
                self.holds.add(taken, [pending.id])
            else:
                task_id = self._admit(group.general, pending.works_on)
                chosen.append(AdmittedEvent(pending, group.general, group.priority, task_id))
            following = next(events, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.position, number, following, events))

    def _admit(self, general: str, subject: str | None) -> str:
        task_id = self._task_ids.take()
        self._admitted[task_id] = general
        self._admitted_of[general] += 1
        if subject is not None:
            self._subjects[subject] = f"{task_id} of {general}"
        for gate in self._reserving:
            gate.reserve(task_id, general, self._now)
        return task_id

    def _capacity_problem(self, general: str) -> str | None:
        limit = self._limits.get(general)
        if limit is None:
            return f"{general} is not installed, or its manifest cannot be used"
        if self._free <= 0:
            return f"all {self._max_soldiers} soldiers are at work (concurrency.max_soldiers)"
        if self._active_of(general) >= limit:
            return f"{general} is at its limit of {limit} at once"
        return None

    def _gate_refusal(self, general: str, priority: str) -> str | None:
        return next((why for gate in self._gates if (why := gate.refusal(general, priority, self._now))), None)

    def _subject_problem(self, subject: str | None, continues: str | None = None) -> str | None:
        """Say for which task an event about a subject waits; None when it may start."""
        if subject is None:
            return None
        for case in self._cases.of_subject(subject):
            if case.root == continues or (case.asked is not None and (continues or case.general in self._passable)):
                continue
            asks = ", which waits for an answer" if case.asked is not None else ""
            return f"{_shown(subject)} has a task already: {case.task} of {case.general}{asks}"
        admitted = self._subjects.get(subject)
        return None if admitted is None else f"{_shown(subject)} has a task already: {admitted}"


def _shown(subject: str) -> str:
    return "its Slack thread" if SlackThread.of_subject(subject) is not None else one_line(subject)
