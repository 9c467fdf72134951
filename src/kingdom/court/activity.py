"""Recent activity: the end of the journal, and results as data for a general that writes about them."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.base.files import read_json
from kingdom.court.models import Result, timestamp
from kingdom.journal import Entry, InvalidLine, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from kingdom.court.home import Home


_TAIL_BYTES: Final = 512 * 1024


def journal_tail(path: Path, size: int = _TAIL_BYTES) -> list[Entry]:
    """Return the entries in the last ``size`` bytes of the current file, oldest first. Skip invalid lines."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(end - size, 0)
            file.seek(max(begin - 1, 0))
            content = file.read(end - begin + 1)
    except OSError:
        return []
    lines = content.split(b"\n")
    entries = []
    for line in lines[1 if begin else 0 :]:  # the first line may be incomplete
        try:
            entries.append(parse(line))
        except InvalidLine:
            continue
    return entries


def missing_entries(path: Path, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return those of ``lines``, each a type and its data, that are not at the end of the journal.

    A process that continues after a kill calls this: its predecessor may or may not have written them.
    """
    written = {_entry_key(entry.type, entry.fields) for entry in journal_tail(path)}
    return [(name, data) for name, data in lines if _entry_key(name, data) not in written]


def _entry_key(name: str, data: Mapping[str, Any]) -> str:
    return json.dumps([name, {key: value for key, value in data.items() if value is not None}], sort_keys=True)


_MAX_RESULTS_READ: Final = 2000  # result files, the latest first
_MAX_RESULTS_SHOWN: Final = 100
_MAX_TEXT_CHARS: Final = 400  # characters of a summary


def recent_activity(
    home: Home, general: str, until: datetime, hours: float, waiting: Mapping[str, int]
) -> dict[str, Any]:
    """Return results and open questions since the last success of ``general``, at most ``hours`` before ``until``.

    This is the data that ``records_hours`` in a manifest asks for. ``waiting`` is the number of pending documents in
    each queue. The texts come from soldiers and people, so a prompt must fence them like all untrusted data.
    """
    until = _with_timezone(until)
    results = [result for result in _latest_results(home) if _ended_at(result) <= until]
    answered = {(result.model_extra or {}).get("original_task_id") for result in results}
    since = until - timedelta(hours=hours)
    own = [_ended_at(result) for result in results if result.general == general and result.status == "success"]
    since = max([since, *own])
    finished = [result for result in results if _ended_at(result) > since and result.general != general]
    asked = [result for result in results if result.status == "needs_human" and result.task_id not in answered]
    return {
        "from": _format_time(since),
        "until": _format_time(until),
        "waiting_for_a_person": [_question_summary(result) for result in asked[:_MAX_RESULTS_SHOWN]],
        "finished": [
            _result_summary(result) for result in finished[:_MAX_RESULTS_SHOWN] if result.status != "needs_human"
        ],
        "totals": _totals(finished),
        "waiting_in_queues": dict(waiting),
    }


def _latest_results(home: Home) -> Iterator[Result]:
    """Yield the stored results, the latest first. Skip unreadable ones: they are reported elsewhere."""
    names: list[tuple[float, Path]] = []
    for path in home.results.glob("task-*[0-9].json"):
        try:
            names.append((path.stat().st_mtime, path))
        except OSError:
            continue
    for _, path in sorted(names, reverse=True)[:_MAX_RESULTS_READ]:
        try:
            yield Result.model_validate(read_json(path))
        except ValidationError:
            continue


def _ended_at(result: Result) -> datetime:
    return _with_timezone(result.ended_at)


def _with_timezone(moment: datetime) -> datetime:
    """Assume UTC for a time without a zone, as in a file written by hand."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _format_time(moment: datetime) -> str:
    return timestamp(moment.timestamp())


def _question_summary(result: Result) -> dict[str, Any]:
    question = result.question
    return {
        "task": result.task_id,
        "general": result.general,
        "since": _format_time(_ended_at(result)),
        "question": question.text[:_MAX_TEXT_CHARS] if question else "",
    }


def _result_summary(result: Result) -> dict[str, Any]:
    record = {
        "task": result.task_id,
        "general": result.general,
        "status": result.status,
        "ended": _format_time(_ended_at(result)),
        "minutes": round(result.duration_seconds / 60, 1),
        "cost_usd": result.cost_usd,
        "tries": result.retry_count + 1,
        "summary": result.summary[:_MAX_TEXT_CHARS],
        "error": (result.error or "")[:_MAX_TEXT_CHARS],
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
