"""The record of a general: next runs, outcomes, durations, cost and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field

from kingdom.agents.ledger import LedgerSum
from kingdom.base.files import read_object
from kingdom.base.times import epoch_seconds, utc_datetime
from kingdom.court.budget import limit_usage, limits_of, spending_at
from kingdom.court.chamberlain.reports import current_stats
from kingdom.court.cron import parse_cron
from kingdom.court.king.schedules import SCHEDULE_FILE
from kingdom.court.models import timestamp
from kingdom.court.problems import API_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kingdom.agents.ledger import Ledger
    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import Manifest

LATEST_RESULTS: Final = 100
"""How many of the latest results the durations are computed from."""
_OUTCOMES: Final = ("completed", "failed", "cancelled", "needs_human", "timeout")


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """When a schedule runs next."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    name: Annotated[str, Field(examples=["nightly"])]
    cron: Annotated[str, Field(examples=["0 3 * * *"])]
    timezone: Annotated[str, Field(examples=["UTC"])]
    next_at: Annotated[str, Field(description="The next slot, or the one that has come and waits.")]
    is_due: Annotated[bool, Field(description="The slot has come, and its task may not start yet.")]
    last: Annotated[str | None, Field(description="The id of the last slot that became a task.")]


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit of a general, and how much of it is used."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    name: Annotated[str, Field(examples=["daily budget of gen-pr"])]
    shown: Annotated[str, Field(examples=["$2.50 of $10.00"])]
    part: Annotated[float, Field(description="Used fraction; 1 is the whole limit.", examples=[0.25])]


@dataclass(frozen=True, slots=True)
class TaskDurations:
    """How long the latest tasks took, in seconds."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    tasks: Annotated[int, Field(description="How many tasks the figures are computed from.")]
    median: float | None
    p95: float | None
    longest: float | None


@dataclass(frozen=True, slots=True)
class GeneralRecord:
    """What a general did and spent, and when it runs next."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    planned: list[PlannedRun]
    days: Annotated[int, Field(description="The number of days of the outcomes.")]
    outcomes: Annotated[
        dict[str, int], Field(description="Tasks by outcome.", examples=[{"completed": 9, "failed": 1}])
    ]
    success_rate: Annotated[
        float | None, Field(description="Completed tasks, of those that completed or failed.", examples=[0.9])
    ]
    durations: TaskDurations
    day_usd: float
    month_usd: float
    month_tokens: int
    month_runs: int
    limits: list[LimitUse]


def general_record(
    home: Home, system: SystemConfig, manifest: Manifest, ledger: Ledger, tasks: Sequence[str], now: float
) -> GeneralRecord:
    """Read the record of a general. ``tasks`` are the ids of its latest ended tasks."""
    name = manifest.name
    spending = spending_at(ledger, now, ZoneInfo(system.timezone))
    day, month = (one.by_general.get(name, LedgerSum()) for one in spending)
    limits = [LimitUse(limit.name, *limit_usage(limit, spending)) for limit in limits_of(manifest.budget, name)]
    stored = current_stats(home, now).get("days")
    days: dict[str, Any] = stored if isinstance(stored, dict) else {}
    outcomes = _outcomes(days.values(), name)
    ended = outcomes["completed"] + outcomes["failed"]
    return GeneralRecord(
        planned=planned_runs(home, manifest, system.timezone, now),
        days=len(days),
        outcomes=outcomes,
        success_rate=outcomes["completed"] / ended if ended else None,
        durations=_durations(read_object(home.result(task_id)) for task_id in tasks[:LATEST_RESULTS]),
        day_usd=round(day.cost_usd, 6),
        month_usd=round(month.cost_usd, 6),
        month_tokens=month.tokens,
        month_runs=month.runs,
        limits=limits,
    )


def planned_runs(home: Home, manifest: Manifest, zone: str, now: float) -> list[PlannedRun]:
    """Return the next run of each schedule of a general; ``zone`` is the time zone of the court."""
    stored = read_object(home.role("king") / SCHEDULE_FILE)
    found = []
    for schedule in manifest.schedules:
        known = stored.get(f"{manifest.name}/{schedule.name}")
        known = known if isinstance(known, dict) else {}
        due, last = epoch_seconds(known.get("due")), known.get("sent")
        timezone = schedule.timezone or zone
        following = parse_cron(schedule.cron).next_after(utc_datetime(now), ZoneInfo(timezone)).timestamp()
        found.append(
            PlannedRun(
                name=schedule.name,
                cron=schedule.cron,
                timezone=timezone,
                next_at=timestamp(following if due is None else due),
                is_due=due is not None,
                last=last if isinstance(last, str) else None,
            )
        )
    return found


def _outcomes(days: Iterable[Any], name: str) -> dict[str, int]:
    counts = dict.fromkeys(_OUTCOMES, 0)
    for day in days:
        generals = day.get("generals") if isinstance(day, dict) else None
        own = generals.get(name) if isinstance(generals, dict) else None
        if isinstance(own, dict):
            for outcome in _OUTCOMES:
                value = own.get(outcome)
                counts[outcome] += value if isinstance(value, int) else 0
    return counts


def _durations(results: Iterable[Mapping[str, Any]]) -> TaskDurations:
    found = sorted(
        float(seconds)
        for result in results
        if isinstance(seconds := result.get("duration_seconds"), int | float) and math.isfinite(seconds)
    )
    if not found:
        return TaskDurations(0, None, None, None)
    return TaskDurations(len(found), _percentile(found, 50), _percentile(found, 95), found[-1])


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[-(-len(ordered) * percent // 100) - 1]
