"""How long works and tasks took, from the events of their workflow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from kingdom.web.views.workflows import WorkflowEvent

if TYPE_CHECKING:
    from kingdom.web.dashboard.words import Words

_BEGINS: Final = {"WorkStarted": "workId", "TaskStarted": "taskId"}
_ENDS: Final = {"WorkCompleted": "workId", "TaskCompleted": "taskId", "QueryFailed": "taskId", "ReportFailed": "taskId"}
_RESTING: Final = frozenset({"PAUSED", "FAILED", "CANCELLED", "PENDING"})


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when; still going on where there is no end."""

    begin: datetime
    end: datetime | None = None

    def seconds(self, now: datetime) -> float:
        """How long it took, or takes already."""
        return max(0.0, ((self.end or now) - self.begin).total_seconds())


class Durations:
    """The last span of each Work and task, by id."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    def take(self, events: Iterable[WorkflowEvent]) -> None:
        """Count further events, in their order."""
        for event in events:
            if event.type in _BEGINS:
                self._spans[str(event.payload[_BEGINS[event.type]])] = Span(event.occurred_at)
            elif event.type in _ENDS:
                self._end(str(event.payload[_ENDS[event.type]]), event.occurred_at)
            elif event.type == "WorkStatusChanged" and event.payload["status"] in _RESTING:
                self._end(str(event.payload["workId"]), event.occurred_at)

    def of(self, item_id: str) -> Span | None:
        """The span of a Work or task; None when it never began."""
        return self._spans.get(item_id)

    def _end(self, item_id: str, at: datetime) -> None:
        if (span := self._spans.get(item_id)) is not None and span.end is None:
            self._spans[item_id] = Span(span.begin, at)


def spoken(seconds: float, words: Words) -> str:
    """A duration for people, to the second: ``4 s``, ``2 min 5 s``, ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 60:
        return words("time.seconds", n=whole)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return words("time.exactly", n=minutes, s=rest)
    hours, minutes = divmod(minutes, 60)
    return words("time.hours", n=hours, m=minutes)
