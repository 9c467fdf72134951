"""Who may start now: the general's own limit, the court's, health, budget, and one task for each subject."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kingdom.court.king.gates import HealthGate, Reserving
from kingdom.court.king.holds import Holds
from kingdom.court.king.waiting import RANKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.king.cases import Case, Cases
    from kingdom.court.king.gates import Gate
    from kingdom.court.king.identifiers import TaskIds
    from kingdom.court.king.waiting import Line, Waiting
    from kingdom.court.packages.loading import Generals


class Held(Exception):
    """Not now; the text says why."""


class Chosen(NamedTuple):
    """An event that may start, and the task it becomes."""

    waiting: Waiting
    general: str
    priority: str
    task_id: str


class Admission:
    """One look at what may start. What is let through counts from that moment on."""

    def __init__(
        self, home: Home, config: SystemConfig, cases: Cases, task_ids: TaskIds, gates: Sequence[Gate] = ()
    ) -> None:
        self._max_soldiers = config.concurrency.max_soldiers
        self._cases = cases
        self._task_ids = task_ids
        self._health = HealthGate(home)
        self._gates = gates
        self._reserving = [gate for gate in gates if isinstance(gate, Reserving)]
        self._limits: dict[str, int] = {}  # by general
        self._now = 0.0
        self._admitted: dict[str, str] = {}  # the general of each task let through in this look,
        self._admitted_of: Counter[str] = Counter()  # and how many for each
        self._subjects: set[str] = set()
        self.holds = Holds()

    def begin(self, generals: Generals, now: float) -> None:
        """Begin a look: nothing is let through yet."""
        self._limits = {name: general.manifest.concurrency for name, general in generals.by_name.items()}
        self._now = now
        self._admitted.clear()
        self._admitted_of.clear()
        self._subjects.clear()
        self.holds = Holds()

    def admit(self, general: str, priority: str, subject: str | None = None) -> str:
        """Let a task start and return its id, or raise :class:`Held` that says why not.

        ``subject`` is None when the task goes on with a case that has its subject already.
        """
        reason = self._full(general) or self._health.refusal(general, priority, self._now)
        reason = reason or self._refused(general, priority) or self._taken(subject)
        if reason is not None:
            raise Held(reason)
        return self._let_in(general, subject)

    def choose(self, lines: Sequence[Line], limit: int) -> list[Chosen]:
        """The events that may start, the more urgent first, then those that have waited longer."""
        ready = []
        for line in lines:
            reason = line.problem or self._full(line.general)
            reason = reason or self._health.refusal(line.general, line.priority, self._now)
            if reason is None:
                ready.append(line)
            else:
                self.holds.add(reason, line.events, len(line.events))
        self._task_ids.expect(min(limit, self._free, sum(self._startable(line) for line in ready)))
        chosen: list[Chosen] = []
        for priority in RANKS:
            self._choose_from([line for line in ready if line.priority == priority], limit, chosen)
        return chosen

    def forgo(self, task_id: str) -> None:
        """What was let through does not start after all."""
        if (general := self._admitted.pop(task_id, None)) is not None:
            self._admitted_of[general] -= 1
        self._task_ids.give_back(task_id)
        self.release(task_id)

    def reserve(self, case: Case, now: float) -> None:
        """A case is under way."""
        for gate in self._reserving:
            gate.reserve(case.task, case.general, now)

    def release(self, task_id: str) -> None:
        """A task has ended."""
        for gate in self._reserving:
            gate.release(task_id)

    @property
    def _free(self) -> int:
        return self._max_soldiers - self._cases.active_count - len(self._admitted)

    def _startable(self, line: Line) -> int:
        return min(len(line.events), self._limits[line.general] - self._active_of(line.general))

    def _active_of(self, general: str) -> int:
        return self._cases.active_of(general) + self._admitted_of[general]

    def _choose_from(self, lines: list[Line], limit: int, chosen: list[Chosen]) -> None:
        seen = [0] * len(lines)
        heads = []
        for number, line in enumerate(lines):
            events = iter(line.events.values())
            first = next(events)
            heads.append((first.place, number, first, events))
        heapq.heapify(heads)
        while heads and len(chosen) < limit:
            _, number, waiting, events = heads[0]
            line = lines[number]
            reason = self._full(line.general) or self._refused(line.general, line.priority)
            if reason is not None:
                self.holds.add(reason, [waiting.id], len(line.events) - seen[number])
                heapq.heappop(heads)
                continue
            seen[number] += 1
            if taken := self._taken(waiting.subject):
                self.holds.add(taken, [waiting.id])
            else:
                task_id = self._let_in(line.general, waiting.subject)
                chosen.append(Chosen(waiting, line.general, line.priority, task_id))
            following = next(events, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.place, number, following, events))

    def _let_in(self, general: str, subject: str | None) -> str:
        task_id = self._task_ids.take()
        self._admitted[task_id] = general
        self._admitted_of[general] += 1
        if subject is not None:
            self._subjects.add(subject)
        for gate in self._reserving:
            gate.reserve(task_id, general, self._now)
        return task_id

    def _full(self, general: str) -> str | None:
        limit = self._limits.get(general)
        if limit is None:
            return f"{general} is not installed, or its manifest cannot be used"
        if self._free <= 0:
            return f"all {self._max_soldiers} soldiers are at work (concurrency.max_soldiers)"
        if self._active_of(general) >= limit:
            return f"{general} is at its limit of {limit} at once"
        return None

    def _refused(self, general: str, priority: str) -> str | None:
        return next((why for gate in self._gates if (why := gate.refusal(general, priority, self._now))), None)

    def _taken(self, subject: str | None) -> str | None:
        if subject is None:
            return None
        if subject in self._subjects or self._cases.of_subject(subject) is not None:
            return "its subject has a task already"
        return None
