"""Read the journal and the ledger into the store of roll-ups, each line once."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.times import epoch_seconds, minute_start
from kingdom.court.rollups.sketch import slot_of
from kingdom.court.rollups.store import (
    HOUR,
    MINUTE,
    RollupBatch,
    RollupStore,
    RollupsUnavailable,
    SpentInMinute,
    adopt_copy,
    rollups_copy_path,
    rollups_path,
    stored_positions,
)
from kingdom.journal import Cursor, Reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from kingdom.bus.delivery import Depth
    from kingdom.court.home import Home

log = logging.getLogger("kingdom.court.chamberlain")

EVENTS: Final = "events"
CREATED: Final = "created"
KIND_BY_TYPE: Final = {
    "event.detected": EVENTS,
    "task.created": CREATED,
    "task.completed": "completed",
    "task.failed": "failed",
    "task.cancelled": "cancelled",
    "task.needs_human": "needs_human",
    "soldier.timeout": "timeouts",
}
"""The types of journal lines that are counted, and under which name."""
JOURNAL: Final = "journal"
_LEDGER: Final = "ledger"
_STEP_SECONDS: Final = 1.0  # of reading in one call
_MAX_LEDGER_BYTES: Final = 4 << 20  # of one file in one call
_MAX_NAME_CHARS: Final = 200
_MAX_MINUTES_CACHED: Final = 2_000


class RollupRecorder:
    """Adds what is new to the store. Used by one thread at a time."""

    def __init__(self, home: Home, zone: ZoneInfo) -> None:
        self._home = home
        self._zone = zone
        self._store: RollupStore | None = None
        self._reader: Reader | None = None
        self._ledger: dict[str, int] = {}  # how much of each file was read
        self._minutes: dict[str, int] = {}
        self._stored: Cursor | None = None  # the position in the journal that the store has
        self._pruned = 0.0

    def record(self, now: float, depths: Mapping[str, Depth] | None = None) -> bool:
        """Add new lines, and the age of the queues; return whether all lines are read.

        Raises :class:`kingdom.journal.JournalError` and :class:`RollupsUnavailable`. The next call then goes on after
        the last transaction.
        """
        try:
            return self._record(now, depths or {})
        except BaseException as error:
            self.close()  # the readers are ahead of the store
            if isinstance(error, sqlite3.Error):
                raise RollupsUnavailable(f"{rollups_path(self._home)} cannot be written: {error}") from error
            raise

    @property
    def recording(self) -> bool:
        """Whether the last call ended without an error."""
        return self._store is not None

    def write_copy(self) -> None:
        """Write a copy for the machine that leads next, after a call of :meth:`record` without an error.

        That machine must have what was read of journal and ledger by then. Raises :class:`RollupsUnavailable` and
        :class:`OSError`, which do not concern the roll-ups themselves.
        """
        assert self._store is not None, "recording"
        path = rollups_copy_path(self._home)
        try:
            self._store.write_copy(path)
        except sqlite3.Error as error:
            raise RollupsUnavailable(f"{path} cannot be written: {error}") from error

    def close(self) -> None:
        """Close all files."""
        if self._reader is not None:
            self._reader.close()
        if self._store is not None:
            self._store.close()
        self._reader = self._store = None

    def _record(self, now: float, depths: Mapping[str, Depth]) -> bool:
        if self._store is None or self._reader is None:
            self._open()
        assert self._store is not None
        assert self._reader is not None
        batch = RollupBatch()
        done = self._read_journal(self._reader, batch)
        done &= self._read_ledger(self._store, batch)
        for stream, depth in depths.items():
            batch.queue_ages[_minute(now), stream] = (depth.oldest_pending_seconds, depth.pending)
        if batch != RollupBatch():
            self._store.add(batch, now)
            self._stored = self._reader.cursor
        if now - self._pruned >= HOUR:
            self._store.prune(now)
            self._pruned = now
        return done

    def _open(self) -> None:
        self.close()
        if adopt_copy(rollups_path(self._home), rollups_copy_path(self._home)):
            log.info("the roll-ups of another machine, which led the court before, are gone on with")
        self._store = RollupStore(rollups_path(self._home), self._zone)
        positions = self._store.positions()
        journal = positions.get(JOURNAL)
        cursor = self._stored = None if journal is None else Cursor.from_dict(json.loads(journal))
        self._reader = Reader(self._home.journal, cursor=cursor, report=lambda problem: None)
        self._ledger = json.loads(positions.get(_LEDGER, "{}"))

    # ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────

    def _read_journal(self, reader: Reader, batch: RollupBatch) -> bool:
        until = time.monotonic() + _STEP_SECONDS
        done = True
        for records in reader.read_records():
            self._add_lines(records, batch)
            if time.monotonic() > until:
                done = False
                break
        if reader.cursor != self._stored:  # also when it was found to be behind the end
            batch.positions[JOURNAL] = json.dumps(reader.cursor.to_dict())
        return done

    def _add_lines(self, records: Sequence[Mapping[str, Any]], batch: RollupBatch) -> None:
        for record in records:
            try:
                kind = KIND_BY_TYPE.get(record["type"])
                if kind is None:
                    continue
                minute, data = self._minute_of(record["ts"]), record["data"]
                general = "" if kind == EVENTS else data["target_general"] if kind == CREATED else record["actor"]
                general, seconds = _name(general), _number(data.get("duration_seconds"))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue  # a field of its type is missing
            batch.counts[minute, general, kind] += 1
            if kind == "completed" and seconds is not None:
                batch.durations[minute, general, slot_of(seconds)] += 1

    def _minute_of(self, ts: str) -> int:
        key = ts[:16] + ts[19:]
        found = self._minutes.get(key)
        if found is None:
            if len(self._minutes) >= _MAX_MINUTES_CACHED:
                self._minutes.clear()
            found = self._minutes[key] = _minute(minute_start(ts))
        return found

    # ── the ledger ────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_ledger(self, store: RollupStore, batch: RollupBatch) -> bool:
        """Read new lines of the ledger. Its files are appended to, and never rotated.

        One that is shorter than before lost lines which were read: it is read from its end on.
        """
        before, done, lines = dict(self._ledger), True, []
        for path in sorted(self._home.ledger.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9].jsonl")):
            if path.stat().st_size < self._ledger.get(path.name, 0):
                self._ledger[path.name] = path.stat().st_size
            data = _new_bytes(path, self._ledger.get(path.name, 0))
            whole = data.rfind(b"\n") + 1
            if whole:
                lines += list(_ledger_lines(data[:whole]))
                self._ledger[path.name] = self._ledger.get(path.name, 0) + whole
                done &= len(data) < _MAX_LEDGER_BYTES
        if self._ledger == before:
            return done
        known = store.known_runs([run_id for run_id, *_ in lines])
        for run_id, minute, general, model, micro_usd, tokens in lines:
            if run_id in known:  # a line may be appended twice: it counts once
                continue
            known.add(run_id)
            batch.runs[run_id] = minute
            spent = batch.spending.setdefault((minute, general, model), SpentInMinute())
            spent.micro_usd += micro_usd
            spent.tokens += tokens
            spent.runs += 1
        batch.positions[_LEDGER] = json.dumps(self._ledger)
        return done


def journal_position(home: Home) -> Cursor | None:
    """Return up to where the journal is rolled up; None when there are no roll-ups. Raises :class:`CourtError`."""
    positions = stored_positions(rollups_path(home)) or {}
    return None if JOURNAL not in positions else Cursor.from_dict(json.loads(positions[JOURNAL]))


def _new_bytes(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_MAX_LEDGER_BYTES)


def _ledger_lines(data: bytes) -> Iterator[tuple[str, int, str, str, int, int]]:
    """Yield run, minute, general, model, cost and tokens of each line."""
    for raw in data.splitlines():
        try:
            line = json.loads(raw)
            at = epoch_seconds(line["ts"])
            cost, tokens = _number(line.get("cost_usd") or 0), _number((line.get("tokens") or {}).get("total") or 0)
            if at is None or cost is None or tokens is None:
                continue
            model = _name(line.get("model") or line.get("engine") or "")
            yield (
                str(line["run_id"]), _minute(at), _name(line.get("general") or ""), model,
                round(cost * 1e6), int(tokens),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a truncated line


def _minute(seconds: float) -> int:
    return int(seconds // MINUTE) * MINUTE


def _name(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("a name must be a string")
    return value[:_MAX_NAME_CHARS].encode("utf-8", "replace").decode()


def _number(value: Any) -> float | None:
    """Return a number that is not negative; None for any other value."""
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        return None
    return float(min(value, 1e15))
