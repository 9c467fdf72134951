"""Which Work waits for which, and which of them run beside each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kingdom.workflow.domain.statuses import WorkStatus
from kingdom.workflow.domain.work import Work


class Plan:
    """The works of one workflow.

    A Work that does not say what it is after waits for all before it; one after the start waits for nobody.
    """

    def __init__(self, works: Sequence[Work]) -> None:
        self.works = sorted(works, key=lambda work: work.sequence)
        names = {work.name: work for work in self.works}
        self._direct: dict[str, list[Work]] = {
            work.id: [names[name] for name in work.after if name in names]  # START is no Work
            if work.after
            else [other for other in self.works if other.sequence < work.sequence]
            for work in self.works
        }
        self._plain = not any(work.after for work in self.works)

    def waits_for(self, work: Work) -> list[Work]:
        """The works that must be done before it starts, as it says itself."""
        return self._direct[work.id]

    def before(self, work: Work) -> set[str]:
        """The ids of all works that are done before it starts."""
        found: set[str] = set()
        open_ends = [work]
        while open_ends:
            for other in self._direct[open_ends.pop().id]:
                if other.id not in found:
                    found.add(other.id)
                    open_ends.append(other)
        return found

    def apart(self, work: Work) -> bool:
        """Whether another Work may run at the same time: then each has worktrees of its own."""
        if self._plain:
            return False
        mine = self.before(work)
        return any(
            other.id not in mine and work.id not in self.before(other) for other in self.works if other.id != work.id
        )

    def startable(self, done: Collection[str]) -> list[Work]:
        """The works that may start now; ``done`` are the ids of those that are completed and recorded."""
        return [
            work
            for work in self.works
            if work.status is WorkStatus.PENDING and all(other.id in done for other in self._direct[work.id])
        ]

    def merged_into(self, work: Work) -> list[Work]:
        """The works whose own worktrees are merged before it starts."""
        return [other for other in self._direct[work.id] if self.apart(other)] if work.merge else []
