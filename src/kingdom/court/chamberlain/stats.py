"""``logs/analysis/stats.json``: the counts of the last hours and days, for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.chamberlain.tally import Day, GeneralDay, Tally
    from kingdom.court.home import Home

_DAYS_SHOWN: Final = 31


def analysis_folder(home: Home) -> Path:
    """Where statistics and reports lie."""
    return home.logs / "analysis"


def stats_path(home: Home) -> Path:
    """Where the statistics lie."""
    return analysis_folder(home) / "stats.json"


def stats_document(tally: Tally, now: float) -> dict[str, Any]:
    """The file's content."""
    days = {name: _day(tally.days[name]) for name in sorted(tally.days)[-_DAYS_SHOWN:]}
    hours = {name: _tasks(tally.hours[name]) for name in sorted(tally.hours)}
    return {
        "generated_at": timestamp(now),
        "hours": hours,
        "days": days,
        "failures_in_a_row": dict(sorted(tally.streaks.items())),
        "undispatched_events": len(tally.waiting),
        "unreadable_lines": tally.skipped,
    }


def _day(day: Day) -> dict[str, Any]:
    generals = {name: _general(general) for name, general in sorted(day.generals.items())}
    return {**_tasks(day.types), "generals": generals}


def _tasks(types: Mapping[str, int]) -> dict[str, int]:
    return {
        "events": types.get("event.detected", 0),
        "created": types.get("task.created", 0),
        "completed": types.get("task.completed", 0),
        "failed": types.get("task.failed", 0),
        "needs_human": types.get("task.needs_human", 0),
        "spawned": types.get("soldier.spawned", 0),
        "timeout": types.get("soldier.timeout", 0),
    }


def _general(general: GeneralDay) -> dict[str, Any]:
    average = general.average_seconds
    return {
        "created": general.created,
        "completed": general.completed,
        "failed": general.failed,
        "needs_human": general.needs_human,
        "timeout": general.timeouts,
        "avg_duration_seconds": None if average is None else round(average),
    }
