"""What the court did lately, as data for a general that writes about it (``records_hours`` in its manifest)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.court.files import read_json
from kingdom.court.models import Result, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kingdom.court.home import Home

_MOST_READ: Final = 2000  # result files, the latest first
_MOST_SHOWN: Final = 100
_TEXT: Final = 400  # characters of a summary


def recent_records(
    home: Home, general: str, until: datetime, hours: float, waiting: Mapping[str, int]
) -> dict[str, Any]:
    """Results and open questions since the last success of ``general``, at most ``hours`` before ``until``.

    ``waiting``: how many documents wait in each queue.
    Text in it comes from soldiers and from people: it is data for a prompt, to be fenced like all of it.
    """
    until = _aware(until)
    results = [result for result in _latest(home) if _time(result) <= until]
    answered = {(result.model_extra or {}).get("original_task_id") for result in results}
    since = until - timedelta(hours=hours)
    own = [_time(result) for result in results if result.general == general and result.status == "success"]
    since = max([since, *own])
    finished = [result for result in results if _time(result) > since and result.general != general]
    asked = [result for result in results if result.status == "needs_human" and result.task_id not in answered]
    return {
        "from": _shown_time(since),
        "until": _shown_time(until),
        "waiting_for_a_person": [_question(result) for result in asked[:_MOST_SHOWN]],
        "finished": [_finished(result) for result in finished[:_MOST_SHOWN] if result.status != "needs_human"],
        "totals": _totals(finished),
        "waiting_in_queues": dict(waiting),
    }


def _latest(home: Home) -> Iterator[Result]:
    """The results that are kept, the latest first. One that cannot be read is left out: it is told of elsewhere."""
    names: list[tuple[float, Path]] = []
    for path in home.results.glob("task-*[0-9].json"):
        try:
            names.append((path.stat().st_mtime, path))
        except OSError:
            continue
    for _, path in sorted(names, reverse=True)[:_MOST_READ]:
        try:
            yield Result.model_validate(read_json(path))
        except ValidationError:
            continue


def _time(result: Result) -> datetime:
    return _aware(result.ended_at)


def _aware(moment: datetime) -> datetime:
    """A time without a zone, which somebody wrote by hand, is taken as UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _shown_time(moment: datetime) -> str:
    return timestamp(moment.timestamp())


def _question(result: Result) -> dict[str, Any]:
    question = result.question
    return {
        "task": result.task_id,
        "general": result.general,
        "since": _shown_time(_time(result)),
        "question": question.text[:_TEXT] if question else "",
    }


def _finished(result: Result) -> dict[str, Any]:
    record = {
        "task": result.task_id,
        "general": result.general,
        "status": result.status,
        "ended": _shown_time(_time(result)),
        "minutes": round(result.duration_seconds / 60, 1),
        "cost_usd": result.cost_usd,
        "tries": result.retry_count + 1,
        "summary": result.summary[:_TEXT],
        "error": (result.error or "")[:_TEXT],
        "links": result.links[:5],
    }
    return {key: value for key, value in record.items() if value not in (None, "", [])}


def _totals(results: list[Result]) -> dict[str, Any]:
    totals: dict[str, Any] = {}
    for name in sorted({result.general for result in results}):
        own = [result for result in results if result.general == name]
        cost = sum(result.cost_usd or 0.0 for result in own)
        totals[name] = {**Counter(result.status for result in own), "cost_usd": round(cost, 4)}
    return totals
