"""Recent activity: the end of the journal, and results as data for a general that writes about them."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from kingdom.base.files import read_json
from kingdom.court.models import Result, timestamp
from kingdom.journal import InvalidLine, JournalError, Reader, parse
from kingdom.journal.catalog import EventDetected
from kingdom.journal.logfiles import list_rotated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.journal import Entry


DAY_SECONDS: Final = 24 * 3600.0
log = logging.getLogger("kingdom.court")
_TAIL_BYTES: Final = 512 * 1024
L = TypeVar("L", tuple[str, Mapping[str, Any]], tuple[str, dict[str, Any], str])


def journal_tail(path: Path, size: int = _TAIL_BYTES) -> list[Entry]:
    """Return the entries in the last ``size`` bytes of the journal, oldest first, also of rotated files.

    Invalid lines are skipped.
    """
    found: list[Entry] = []
    for one in journal_files(path):
        content, whole = _last_bytes(one, size)
        lines = content.split(b"\n")
        found[:0] = [entry for line in lines[0 if whole else 1 :] if (entry := parse_or_none(line)) is not None]
        size -= len(content)
        if size <= 0:
            break
    return found


def journal_files(path: Path) -> Iterator[Path]:
    """Yield the files of the journal, the newest first."""
    yield path
    try:
        yield from (path.with_name(rotated.name) for rotated in reversed(list_rotated(path)))
    except OSError:
        return


def _last_bytes(path: Path, size: int) -> tuple[bytes, bool]:
    """Return the last bytes of a file, and whether they begin with a whole line."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(end - size, 0)
            file.seek(max(begin - 1, 0))
            return file.read(end - begin + 1), not begin
    except OSError:
        return b"", True


def parse_or_none(line: bytes) -> Entry | None:
    """Return the entry of a line; None if the line is invalid."""
    try:
        return parse(line)
    except InvalidLine:
        return None


class RecentJournal:
    """The journal entries of some types of the last 24 hours. A second call reads only what is new. Thread-safe."""

    def __init__(self, path: Path, types: Iterable[str], markers: Sequence[bytes] = ()) -> None:
        """With ``markers``, only lines that contain one of them count."""
        self._path = path
        self._types = frozenset(types)
        self._markers = tuple(markers) or tuple(f'"{name}"'.encode() for name in self._types)  # to parse few lines
        self._entries: deque[Entry] = deque()
        self._reader: Reader | None = None
        self._lock = threading.Lock()

    def read(self, now: float) -> list[Entry]:
        """Return the entries, oldest first. Raises :class:`kingdom.journal.JournalError`."""
        since = now - DAY_SECONDS
        with self._lock:
            if self._reader is None:
                self._reader = Reader(self._path, start=since, report=lambda problem: None)
            for line in self._reader.read_lines():
                if not any(marker in line for marker in self._markers):
                    continue
                entry = parse_or_none(line)
                if entry is not None and entry.type in self._types:
                    self._entries.append(entry)
            while self._entries and self._entries[0].at.timestamp() < since:
                self._entries.popleft()
            return [entry for entry in self._entries if entry.at.timestamp() >= since]

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
                self._entries.clear()


def recent_entries(path: Path, now: float, types: Iterable[str]) -> list[Entry]:
    """Return the journal entries of some types of the last 24 hours, oldest first; none when it cannot be read."""
    journal = RecentJournal(path, types)
    try:
        return journal.read(now)
    except JournalError:
        return []
    finally:
        journal.close()


def missing_entries(path: Path, now: float, lines: Iterable[L]) -> list[L]:
    """Return those of ``lines``, each a type, its data and perhaps its actor, that the last 24 hours do not have.

    A process that continues after a kill calls this: its predecessor may or may not have written them.
    """
    lines = list(lines)
    written = recent_entries(path, now, {line[0] for line in lines}) if lines else ()
    known = {_entry_key(entry.type, entry.fields) for entry in written}
    return [line for line in lines if _entry_key(line[0], line[1]) not in known]


class DetectedEvents:
    """The events of the last 24 hours for which a role wrote ``event.detected``: each gets one line.

    What a former process wrote is read from the journal, once: a search in it for each new event would take longer and
    longer as the journal grows.
    """

    def __init__(self, journal: Path, actor: str) -> None:
        self._journal = journal
        self._actor = actor
        self._ids: dict[str, float] | None = None  # with the time of the line, the oldest first

    def add(self, ids: Iterable[str], now: float) -> set[str]:
        """Add events; return those that are new."""
        if self._ids is None:
            written = recent_entries(self._journal, now, [EventDetected.spec.name])
            own = [entry for entry in written if entry.actor == self._actor]
            self._ids = {entry.fields["event_id"]: entry.at.timestamp() for entry in own}
        for old in list(takewhile(lambda one: one[1] < now - DAY_SECONDS, self._ids.items())):
            del self._ids[old[0]]
        new = {one for one in ids if one not in self._ids}
        self._ids |= dict.fromkeys(new, now)
        return new


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


def append_task_log(home: Home, task_id: str, at: float, text: str) -> None:
    """Append a line to ``logs/tasks.log``. A log that cannot be written does not stop the work."""
    try:
        with (home.logs / "tasks.log").open("ab") as file:
            file.write(f"{timestamp(at)} {task_id} {text}\n".encode())
    except OSError as error:
        log.warning("%s: not in tasks.log: %s", task_id, error)
