"""Statistics over time, as tables and as a document."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from kingdom.court.rollups.queries import HistoryPoint, StatsHistory, TaskFigures

_DAY_SECONDS: Final = 86400
_STEP_NAMES: Final = {60: "minute", 900: "quarter of an hour", 3600: "hour", _DAY_SECONDS: "day"}
_FIGURES: Final = ("created", "completed", "failed", "asked", "success", "p50", "p95", "cost")


def history_document(history: StatsHistory) -> dict[str, Any]:
    """Return the statistics as a document for ``--json``."""
    return asdict(history)


def print_history(history: StatsHistory, zone: ZoneInfo) -> None:
    """Print the statistics: in total, by general, by model, and of each step in which something happened."""
    busy = [point for point in history.points if _is_busy(point)]
    step = _STEP_NAMES[history.step_seconds]
    begin, end = _shown_time(history.since, zone), _shown_time(history.until, zone)
    about = "" if history.general is None else f" of {history.general}"
    if not busy:
        output.say(f"nothing recorded{about} from {begin} to {end}: the chamberlain records while the court is up")
        return
    output.say(f"{begin} to {end}{about}, by {step}; durations are within 2 %")
    output.say()
    rows = [("all", *_cells(history.total))] if len(history.generals) != 1 else []
    rows += [(name or "(no general)", *_cells(figures)) for name, figures in history.generals.items()]
    output.print_table(("general", *_FIGURES), rows, _FIGURES)
    output.say()
    if history.models:
        columns = ("model", "runs", "tokens", "cost")
        models = [(name, one.runs, f"{one.tokens:,}", _usd(one.cost_usd)) for name, one in history.models.items()]
        output.print_table(columns, models, columns[1:])
        output.say()
    numbers = (*_FIGURES, "oldest waiting")
    output.print_table((step, *numbers), [_point_cells(point, history.step_seconds, zone) for point in busy], numbers)


def _point_cells(point: HistoryPoint, step: int, zone: ZoneInfo) -> tuple[object, ...]:
    at = datetime.fromisoformat(point.start).astimezone(zone)
    shown = at.strftime("%Y-%m-%d" if step == _DAY_SECONDS else "%Y-%m-%d %H:%M")
    oldest = max(point.queue_age_seconds.values(), default=None)
    return (shown, *_cells(point.tasks), _seconds(oldest))


def _is_busy(point: HistoryPoint) -> bool:
    tasks = point.tasks
    counts = (tasks.created, tasks.ended, tasks.cancelled, tasks.needs_human, tasks.runs)
    return any(counts) or any(point.queue_age_seconds.values())


def _cells(tasks: TaskFigures) -> tuple[object, ...]:
    rate = "–" if tasks.success_rate is None else f"{tasks.success_rate:.0%}"
    counts = (tasks.created, tasks.completed, tasks.failed, tasks.needs_human)
    return (*counts, rate, _seconds(tasks.p50_seconds), _seconds(tasks.p95_seconds), _usd(tasks.cost_usd))


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} s" if value < 10 else f"{value:,.0f} s"


def _usd(value: float) -> str:
    return f"${value:,.2f}"


def _shown_time(text: str, zone: ZoneInfo) -> str:
    return datetime.fromisoformat(text).astimezone(zone).strftime("%Y-%m-%d %H:%M")
