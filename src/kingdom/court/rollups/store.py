"""The file of roll-ups, ``state/chamberlain/rollups.db``: written by the chamberlain, read by others.

What was read, and the position up to which it was read, are stored in one transaction. So after a kill at any instant
every line counts once. Each figure is added to its minute, its quarter of an hour, its hour and its day at once: there
is no later step that could be interrupted, and a question is answered by a few hundred rows.

Days are those of the court's time zone when they were recorded; the others are of UTC. SQLite syncs its log before it
overwrites the file, so a power cut may cost the last transactions, position included: they are read again.

Machines of a court that may lead share ``rollups.copy``, made every hour by the one that leads, after what it has read
is in the database. The next one goes on with it. The position in it holds for a copy of the journal, too, so each line
counts once there as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.base.files import temporary_prefix
from kingdom.court.days import day_of, start_of_day
from kingdom.court.errors import CourtError
from kingdom.court.rollups.sketch import add_slots, slots_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from kingdom.court.home import Home

log = logging.getLogger("kingdom.court.chamberlain")

MINUTE: Final = 60
QUARTER: Final = 900
HOUR: Final = 3600
DAY: Final = 86400
"""The steps, in seconds. A day may have more or less of them."""
KEPT_SECONDS: Final = {MINUTE: 6 * HOUR, QUARTER: 3 * DAY, HOUR: 35 * DAY, DAY: 400 * DAY}
"""How long the roll-ups of each step are kept."""
_RUNS_KEPT_SECONDS: Final = 7 * DAY  # ids of runs, of which a line of the ledger may be repeated
_VERSION: Final = 1
_BUSY_TIMEOUT_SECONDS: Final = 10.0
_LOG_PAGES: Final = 64  # of its write-ahead log, before they are moved into the file
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS counts (
        step INTEGER, start INTEGER, general TEXT, kind TEXT, number INTEGER NOT NULL,
        PRIMARY KEY (step, start, general, kind)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS durations (
        step INTEGER, start INTEGER, general TEXT, slots TEXT NOT NULL,
        PRIMARY KEY (step, start, general)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS spending (
        step INTEGER, start INTEGER, general TEXT, model TEXT,
        micro_usd INTEGER NOT NULL, tokens INTEGER NOT NULL, runs INTEGER NOT NULL,
        PRIMARY KEY (step, start, general, model)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS queue_ages (
        step INTEGER, start INTEGER, stream TEXT, seconds REAL NOT NULL, waiting INTEGER NOT NULL,
        PRIMARY KEY (step, start, stream)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS ledger_runs (id TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS positions (source TEXT PRIMARY KEY, place TEXT NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {_VERSION}",
)
_ADD_COUNT: Final = """INSERT INTO counts VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET number = number + excluded.number"""
# A row for each slot needs no reading before writing, but 50,000 rows for 90 busy days: a question took longer.
# So a histogram is one text.
_GET_SLOTS: Final = "SELECT slots FROM durations WHERE step = ? AND start = ? AND general = ?"
_SET_SLOTS: Final = "INSERT OR REPLACE INTO durations VALUES (?, ?, ?, ?)"
_ADD_SPENDING: Final = """INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET micro_usd = micro_usd + excluded.micro_usd, tokens = tokens + excluded.tokens,
    runs = runs + excluded.runs"""
_ADD_QUEUE_AGE: Final = """INSERT INTO queue_ages VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET seconds = max(seconds, excluded.seconds), waiting = max(waiting, excluded.waiting)"""
_TABLES: Final = ("counts", "durations", "spending", "queue_ages")


class RollupsUnavailable(CourtError):
    """The file of roll-ups cannot be used; the message says why and what to do."""

    code = "ROLLUPS_UNAVAILABLE"


def rollups_path(home: Home) -> Path:
    return home.role("chamberlain") / "rollups.db"


def rollups_copy_path(home: Home) -> Path:
    return home.role("chamberlain") / "rollups.copy"


@dataclass(slots=True)
class SpentInMinute:
    """The usage of some runs. Cost is in millionths of a dollar: sums of whole numbers are exact in any order."""

    micro_usd: int = 0
    tokens: int = 0
    runs: int = 0


@dataclass(slots=True)
class RollupBatch:
    """What is added to the store at once, by minute: the keys begin with the minute's start."""

    counts: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    """By minute, general and kind."""
    durations: Counter[tuple[int, str, int]] = field(default_factory=Counter)
    """By minute, general and slot."""
    spending: dict[tuple[int, str, str], SpentInMinute] = field(default_factory=dict)
    """By minute, general and model."""
    queue_ages: dict[tuple[int, str], tuple[float, int]] = field(default_factory=dict)
    """By minute and stream: the age of the oldest that waits, and how many wait."""
    runs: dict[str, int] = field(default_factory=dict)
    """The runs in ``spending``, with their minute."""
    positions: dict[str, str] = field(default_factory=dict)
    """Up to where each source was read."""


class RollupStore:
    """The file, opened for writing. There is one writer: the chamberlain."""

    def __init__(self, path: Path, zone: ZoneInfo) -> None:
        """Open or create the file. A damaged one is set aside. Raises :class:`RollupsUnavailable`."""
        self._zone = zone
        self._connection = _open_or_replace(path)

    def positions(self) -> dict[str, str]:
        """Return up to where each source was read."""
        return dict(self._connection.execute("SELECT source, place FROM positions"))

    def known_runs(self, ids: list[str]) -> set[str]:
        """Return those of the runs that are counted already."""
        found: set[str] = set()
        for begin in range(0, len(ids), 500):
            some = ids[begin : begin + 500]
            marks = ",".join("?" * len(some))
            query = f"SELECT id FROM ledger_runs WHERE id IN ({marks})"  # noqa: S608 - question marks only
            found |= {row[0] for row in self._connection.execute(query, some)}
        return found

    def add(self, batch: RollupBatch, now: float) -> None:
        """Add a batch in one transaction, with its positions. Figures that are no longer kept are left out."""
        starts = _Starts(self._zone, now)
        with self._writing() as write:
            write.executemany(
                _ADD_COUNT,
                [
                    (step, start, general, kind, number)
                    for (minute, general, kind), number in batch.counts.items()
                    for step, start in starts.of(minute)
                ],
            )
            for key, slots in _durations(batch, starts).items():
                for (stored,) in write.execute(_GET_SLOTS, key).fetchall():
                    add_slots(stored, slots)
                write.execute(_SET_SLOTS, (*key, slots_text(slots)))
            write.executemany(
                _ADD_SPENDING,
                [
                    (step, start, general, model, spent.micro_usd, spent.tokens, spent.runs)
                    for (minute, general, model), spent in batch.spending.items()
                    for step, start in starts.of(minute)
                ],
            )
            write.executemany(
                _ADD_QUEUE_AGE,
                [
                    (step, start, stream, seconds, waiting)
                    for (minute, stream), (seconds, waiting) in batch.queue_ages.items()
                    for step, start in starts.of(minute)
                ],
            )
            write.executemany("INSERT OR IGNORE INTO ledger_runs VALUES (?, ?)", list(batch.runs.items()))
            write.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", list(batch.positions.items()))

    def prune(self, now: float) -> None:
        """Delete what is no longer kept."""
        with self._writing() as write:
            for table in _TABLES:
                for step, kept in KEPT_SECONDS.items():
                    write.execute(
                        f"DELETE FROM {table} WHERE step = ? AND start < ?",  # noqa: S608 - a name of our own
                        (step, int(now - kept - step)),
                    )
            write.execute("DELETE FROM ledger_runs WHERE at < ?", (int(now - _RUNS_KEPT_SECONDS),))

    def write_copy(self, path: Path) -> None:
        """Write a copy of the file as it is now."""
        with _replacing(path) as temporary:
            self._connection.execute("VACUUM INTO ?", (str(temporary),))

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _durations(batch: RollupBatch, starts: _Starts) -> dict[tuple[int, int, str], Counter[int]]:
    found: dict[tuple[int, int, str], Counter[int]] = {}
    for (minute, general, slot), number in batch.durations.items():
        for step, start in starts.of(minute):
            found.setdefault((step, start, general), Counter())[slot] += number
    return found


class _Starts:
    """Finds the periods to which a minute belongs."""

    def __init__(self, zone: ZoneInfo, now: float) -> None:
        self._zone = zone
        self._first = {step: now - kept for step, kept in KEPT_SECONDS.items()}
        self._days: dict[int, int] = {}  # by quarter of an hour: no zone has a finer offset
        self._known: dict[int, tuple[tuple[int, int], ...]] = {}

    def of(self, minute: int) -> tuple[tuple[int, int], ...]:
        """Return step and start of each period in which the minute counts."""
        found = self._known.get(minute)
        if found is None:
            quarter = minute - minute % QUARTER
            day = self._days.get(quarter)
            if day is None:
                day = self._days[quarter] = day_start(quarter, self._zone)
            starts = {MINUTE: minute, QUARTER: quarter, HOUR: minute - minute % HOUR, DAY: day}
            found = tuple((step, start) for step, start in starts.items() if start >= self._first[step] - step)
            self._known[minute] = found
        return found


def day_start(seconds: float, zone: ZoneInfo) -> int:
    """Return the start of the day of the zone that contains a time."""
    return int(start_of_day(day_of(seconds, zone), zone))


def read_only(path: Path) -> sqlite3.Connection | None:
    """Open the file for reading; None when there is none. Raises :class:`RollupsUnavailable`."""
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None
        )
        try:
            version = _version(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        if not path.exists():
            return None
        raise RollupsUnavailable(f"{path} cannot be read: {error}") from error
    if version == 0:  # being created
        connection.close()
        return None
    return connection


def stored_positions(path: Path) -> Mapping[str, str] | None:
    """Return up to where each source was read; None when there is no file. Raises :class:`RollupsUnavailable`."""
    connection = read_only(path)
    if connection is None:
        return None
    with contextlib.closing(connection):
        return dict(connection.execute("SELECT source, place FROM positions"))


def adopt_copy(path: Path, copy: Path) -> bool:
    """Replace the file by a copy in which another machine has recorded for longer; return whether it was replaced."""
    try:
        if _recorded_until(copy) <= _recorded_until(path):
            return False
    except RollupsUnavailable as error:
        log.warning("the copy of the roll-ups is not used: %s", error)
        return False
    with _replacing(path) as temporary:
        shutil.copyfile(copy, temporary)
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    return True


def _recorded_until(path: Path) -> int:
    """Return when the age of the queues was last recorded, which is at every look; -1 when there is no file."""
    connection = read_only(path)
    if connection is None:
        return -1
    with contextlib.closing(connection):
        try:
            return int(connection.execute("SELECT coalesce(max(start), 0) FROM queue_ages").fetchone()[0])
        except sqlite3.Error as error:
            raise RollupsUnavailable(f"{path} cannot be read: {error}") from error


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield an empty file; it replaces the one at ``path`` at the end of the block. Others may not read it."""
    temporary = path.with_name(f"{temporary_prefix()}{path.name}")
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _open_or_replace(path: Path) -> sqlite3.Connection:
    try:
        try:
            return _open(path)
        except sqlite3.OperationalError:  # locked, or the disk is full: not damaged
            raise
        except sqlite3.DatabaseError as error:
            aside = path.with_name(f"{path.name}.damaged")
            log.warning("%s is damaged (%s): renamed to %s, and counted again", path, error, aside.name)
            path.replace(aside)
            for ending in ("-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
            return _open(path)
    except (sqlite3.Error, OSError) as error:
        raise RollupsUnavailable(f"{path} cannot be opened: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_PAGES * 4096}")
        if _version(connection) < _VERSION:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
        connection.execute("SELECT count(*) FROM positions").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > _VERSION:
        raise RollupsUnavailable(
            f"the roll-ups were written by a later version of Kingdom (format {version}, this one knows {_VERSION}): "
            "update Kingdom, or move state/chamberlain/rollups.db away to count again"
        )
    return version
