"""What the roll-ups say about a period: figures in equal steps, in total, by general and by model."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field

from kingdom.court.days import ONE_DAY, day_of, start_of_day
from kingdom.court.models import timestamp
from kingdom.court.problems import API_CONFIG
from kingdom.court.rollups.reading import EVENTS
from kingdom.court.rollups.sketch import add_slots, percentile
from kingdom.court.rollups.store import DAY, HOUR, KEPT_SECONDS, MINUTE, QUARTER, read_only

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from zoneinfo import ZoneInfo

MAX_POINTS: Final = 400
"""More steps do not fit into a chart; a longer period has longer steps."""
_MOST_SECONDS: Final = {MINUTE: 2 * HOUR, QUARTER: 36 * HOUR, HOUR: 10 * DAY, DAY: MAX_POINTS * DAY}
DEFAULT_SECONDS: Final = DAY


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """Tasks of a period: how many, how they ended, how long they took, what they cost."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    created: int
    completed: int
    failed: int
    cancelled: int
    needs_human: int
    timeouts: Annotated[int, Field(description="Runs of soldiers that took too long.")]
    success_rate: Annotated[
        float | None, Field(description="Completed tasks, of those that completed or failed.", examples=[0.9])
    ]
    p50_seconds: Annotated[
        float | None, Field(description="Median duration of the completed tasks, within 2 %.", examples=[212.4])
    ]
    p95_seconds: Annotated[float | None, Field(description="95 % took no longer, within 2 %.", examples=[1860.0])]
    cost_usd: Annotated[float, Field(examples=[1.25])]
    tokens: int
    runs: Annotated[int, Field(description="Runs of agents that ended.")]

    @property
    def ended(self) -> int:
        """Tasks that completed or failed."""
        return self.completed + self.failed


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The figures of one step of a period."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    start: Annotated[str, Field(examples=["2026-02-07T00:00:00Z"])]
    events: Annotated[int, Field(description="Events that were detected.")]
    tasks: TaskFigures
    cost_by_general: Annotated[dict[str, float], Field(description="In USD.", examples=[{"gen-pr": 1.25}])]
    cost_by_model: Annotated[dict[str, float], Field(description="In USD.", examples=[{"claude-sonnet-4-5": 1.25}])]
    queue_age_seconds: Annotated[
        dict[str, float],
        Field(description="Of each queue, how long its oldest item had waited at most.", examples=[{"tasks": 12.0}]),
    ]


@dataclass(frozen=True, slots=True)
class ModelSpending:
    """What the runs of one model cost."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    cost_usd: float
    tokens: int
    runs: int


@dataclass(frozen=True, slots=True)
class StatsHistory:
    """Statistics of a period in equal steps."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    since: Annotated[str, Field(description="The start of the first step.")]
    until: Annotated[str, Field(description="The end of the period.")]
    step_seconds: Annotated[
        int, Field(description="60, 900, 3600, or 86400 for days of the court's time zone.", examples=[86400])
    ]
    timezone: Annotated[str, Field(examples=["Asia/Seoul"])]
    general: Annotated[str | None, Field(description="Only tasks and cost of this general; null: of all.")]
    points: list[HistoryPoint]
    total: TaskFigures
    generals: Annotated[dict[str, TaskFigures], Field(description="By general; empty name: runs without one.")]
    models: Annotated[dict[str, ModelSpending], Field(description="By model.")]


@dataclass(slots=True)
class _Sum:
    """Rows that belong together."""

    counts: Counter[str] = field(default_factory=Counter)
    slots: Counter[int] = field(default_factory=Counter)
    micro_usd: int = 0
    tokens: int = 0
    runs: int = 0

    def spend(self, micro_usd: int, tokens: int, runs: int) -> None:
        self.micro_usd += micro_usd
        self.tokens += tokens
        self.runs += runs

    def figures(self) -> TaskFigures:
        counts = self.counts
        ended = counts["completed"] + counts["failed"]
        return TaskFigures(
            created=counts["created"],
            completed=counts["completed"],
            failed=counts["failed"],
            cancelled=counts["cancelled"],
            needs_human=counts["needs_human"],
            timeouts=counts["timeouts"],
            success_rate=round(counts["completed"] / ended, 4) if ended else None,
            p50_seconds=_rounded(percentile(self.slots, 50)),
            p95_seconds=_rounded(percentile(self.slots, 95)),
            cost_usd=self.micro_usd / 1e6,
            tokens=self.tokens,
            runs=self.runs,
        )


@dataclass(slots=True)
class _PointSum:
    """One step, before it becomes a :class:`HistoryPoint`."""

    tasks: _Sum = field(default_factory=_Sum)
    events: int = 0
    generals: Counter[str] = field(default_factory=Counter)  # their cost
    models: Counter[str] = field(default_factory=Counter)
    ages: dict[str, float] = field(default_factory=dict)

    def point(self, start: int) -> HistoryPoint:
        return HistoryPoint(
            start=timestamp(start),
            events=self.events,
            tasks=self.tasks.figures(),
            cost_by_general={name: cost / 1e6 for name, cost in sorted(self.generals.items())},
            cost_by_model={name: cost / 1e6 for name, cost in sorted(self.models.items())},
            queue_age_seconds=dict(sorted(self.ages.items())),
        )


class _Sums:
    """All rows of a period, added up in every way that is asked for."""

    def __init__(self, starts: Sequence[int], general: str | None) -> None:
        self._starts = starts
        self._general = general
        self.points = {start: _PointSum() for start in starts}
        self.total = _Sum()
        self.generals: dict[str, _Sum] = defaultdict(_Sum)
        self.models: dict[str, _Sum] = defaultdict(_Sum)

    def read(self, connection: sqlite3.Connection, step: int) -> None:
        def select(columns: str, table: str, rest: str = "") -> Iterator[tuple[Any, ...]]:
            query = f"SELECT {columns} FROM {table} WHERE step = ? AND start BETWEEN ? AND ? {rest}"  # noqa: S608
            return connection.execute(query, (step, self._starts[0], self._starts[-1]))

        for start, name, kind, number in select("start, general, kind, number", "counts"):
            if kind == EVENTS:
                self._point(start).events += number
            for one in self._tasks(self._point(start), name) if kind != EVENTS else ():
                one.counts[kind] += number
        for start, name, model, *spent in select("start, general, model, micro_usd, tokens, runs", "spending"):
            self._spend(self._point(start), name, model, *spent)
        for start, stream, seconds in select("start, stream, seconds", "queue_ages"):
            ages = self._point(start).ages
            ages[stream] = max(round(seconds, 3), ages.get(stream, 0.0))
        for start, name, slots in select("start, general, slots", "durations"):
            if self._wanted(name):
                add_slots(slots, self._point(start).tasks.slots, self.generals[name].slots)
        for general in self.generals.values():
            self.total.slots.update(general.slots)

    def _tasks(self, point: _PointSum, general: str) -> Sequence[_Sum]:
        """Return the sums to which a row of a general is added; none, if another general is wanted."""
        return (point.tasks, self.total, self.generals[general]) if self._wanted(general) else ()

    def _wanted(self, general: str) -> bool:
        return self._general is None or self._general == general

    def _spend(self, point: _PointSum, general: str, model: str, micro_usd: int, tokens: int, runs: int) -> None:
        found = self._tasks(point, general)
        for one in (*found, self.models[model]) if found else ():
            one.spend(micro_usd, tokens, runs)
        if found:
            point.generals[general] += micro_usd
            point.models[model] += micro_usd

    def _point(self, start: int) -> _PointSum:
        found = self.points.get(start)
        if found is None:  # a day of another time zone, which the court had then
            found = self.points[self._starts[bisect_right(self._starts, start) - 1]]
        return found


def read_history(
    path: Path, zone: ZoneInfo, now: float, since: float | None = None, until: float | None = None,
    general: str | None = None,
) -> StatsHistory:  # fmt: skip
    """Return the figures of a period; without one, of the last 24 hours.

    The period is widened to whole steps, and begins with what is kept. Raises :class:`RollupsUnavailable`.
    """
    until = now if until is None else min(until, now)
    since = until - DEFAULT_SECONDS if since is None else since
    step = step_of(since, until, now)
    sums = _Sums(_starts(since, until, now, step, zone), general)
    connection = read_only(path)
    if connection is not None:
        with contextlib.closing(connection):
            connection.execute("BEGIN")  # one moment for all tables
            sums.read(connection, step)
    points = [point.point(start) for start, point in sums.points.items()]
    return StatsHistory(
        since=points[0].start,
        until=timestamp(until),
        step_seconds=step,
        timezone=zone.key,
        general=general,
        points=points,
        total=sums.total.figures(),
        generals={name: one.figures() for name, one in sorted(sums.generals.items())},
        models={
            name: ModelSpending(one.micro_usd / 1e6, one.tokens, one.runs) for name, one in sorted(sums.models.items())
        },
    )


def step_of(since: float, until: float, now: float) -> int:
    """Return the finest step in which a period is kept and has few enough points."""
    for step, most in _MOST_SECONDS.items():
        if until - since <= most and since >= now - KEPT_SECONDS[step]:
            return step
    return DAY


def _starts(since: float, until: float, now: float, step: int, zone: ZoneInfo) -> list[int]:
    """Return the starts of the steps of a period: at least one, no more than are kept."""
    last = until if until >= now else until - 0.001  # the step that begins now is a part of it
    since = min(max(since, now - KEPT_SECONDS[step], until - _MOST_SECONDS[step]), last)
    if step != DAY:
        return [number * step for number in range(int(since // step), int(last // step) + 1)]
    day = day_of(since, zone)
    found = [int(start_of_day(day, zone))]
    while (following := int(start_of_day(day := day + ONE_DAY, zone))) <= last:
        found.append(following)
    return found


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
