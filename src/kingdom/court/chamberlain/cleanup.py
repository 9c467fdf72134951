"""Cleanup of expired files once a day, and log rotation.

A cleanup runs in batches, so that the chamberlain can do other work in between. After a kill, the next cleanup removes
the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from kingdom.base.files import read_json
from kingdom.court.chamberlain.memory import memory_path
from kingdom.court.chamberlain.retention import (
    DAY_SECONDS,
    TASK_ID_PATTERN,
    ActiveTasks,
    ExpiredFile,
    RetentionRule,
    find_expired,
    remove_expired,
    retention_rules,
)
from kingdom.court.days import last_due_day
from kingdom.court.errors import CourtError
from kingdom.court.machines.exchange import ORDERS, REPORTS
from kingdom.court.queues import EVENTS, MAX_DOCUMENT_BYTES, MESSAGES, STATES, TASKS, uses_files
from kingdom.court.rollups.reading import journal_position
from kingdom.journal import Cursor, InvalidCursor, JournalError, Reader, copy_to_old, rotate, rotate_to_old
from kingdom.journal.catalog import RecoveryFilesCleaned, RecoveryLogRotated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from kingdom.bus import EventBus
    from kingdom.court.chamberlain.config import RetentionSection
    from kingdom.court.chamberlain.memory import ChamberlainMemory
    from kingdom.court.chamberlain.retention import Warn
    from kingdom.court.chamberlain.sessions import SoldierProcesses
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.journal import EventData, Rotation


BATCH_SIZE: Final = 500
# The folders of finished documents (kingdom.court.queues): done, and dead.
_FINISHED_STATES: Final = {
    EVENTS: ("completed", "invalid"),
    TASKS: ("completed", "invalid"),
    MESSAGES: ("sent", "failed"),
}


class Cleanup:
    """Finds and removes what has expired and does not belong to an active task."""

    def __init__(
        self, home: Home, bus: EventBus, processes: SoldierProcesses, section: RetentionSection, now: float, warn: Warn
    ) -> None:
        self._home = home
        self._bus = bus
        self._section = section
        self._now = now
        self._warn = warn
        self._active = ActiveTasks(home, bus)
        self._processes = processes
        self._soldiers: set[str] | None = None

    async def run(self, *, with_journal: bool = True, with_queues: bool = True) -> AsyncIterator[int]:
        """Remove all expired items in batches; yield the number removed. ``with_journal`` includes closed journals."""
        for rule in retention_rules(self._section):
            async for batch in self._batches(rule):
                going = [item for item in batch if with_journal or not item.name.startswith("events-")]
                yield await asyncio.to_thread(remove_expired, self._home.root, rule, going, self._now, self._warn)
        if not with_queues:
            return
        days, keep = self._section.queue_days, await self._kept_tasks()
        for stream in (REPORTS, ORDERS):  # between the machines of a court, if it has several
            yield await self._bus.purge(days * DAY_SECONDS, stream=stream)
        for stream in _FINISHED_STATES:
            yield await self._bus.purge(days * DAY_SECONDS, stream=stream, keep=keep)
            dead = max(days, self._section.invalid_days)
            yield await self._bus.purge(dead * DAY_SECONDS, stream=stream, dead=True, keep=keep)

    async def plan(self, *, with_queues: bool = True) -> AsyncIterator[ExpiredFile]:
        """Yield what :meth:`run` would remove, with the reason."""
        files = uses_files(self._bus)
        queues = _queue_rules(self._section.queue_days, self._section.invalid_days)
        for rule in (*retention_rules(self._section), *(queues if files else ())):
            async for batch in self._batches(rule):
                for item in batch:
                    yield item
        if with_queues and not files:
            async for item in self._in_database({rule.folder[1:]: rule for rule in queues}):
                yield item

    async def _in_database(self, queues: dict[tuple[str, ...], RetentionRule]) -> AsyncIterator[ExpiredFile]:
        """Yield the queue documents that the bus will purge."""
        keep = set(await self._kept_tasks())
        for stream in _FINISHED_STATES:
            async for record in self._bus.records(stream):
                event_id, ended = record.envelope.event_id, record.finished_at
                if ended is None or event_id in keep:
                    continue
                rule = replace(queues[stream, STATES[stream][record.status]], folder=(stream,))
                age = self._now - ended.timestamp()
                if age > rule.days * DAY_SECONDS:
                    size = len(record.envelope.to_json(MAX_DOCUMENT_BYTES))
                    yield ExpiredFile(rule, event_id, age, size, None, None)

    async def _batches(self, rule: RetentionRule) -> AsyncIterator[list[ExpiredFile]]:
        """Yield batches of what one rule allows to remove."""
        found = await asyncio.to_thread(lambda: list(find_expired(self._home.root, rule, self._now, self._warn)))
        rest = iter(found)
        while batch := list(islice(rest, BATCH_SIZE)):
            yield [item for item in batch if not await self._is_active(item)]

    async def _is_active(self, item: ExpiredFile) -> bool:
        if item.soldier_id is not None:
            if self._soldiers is None:
                self._soldiers = await self._active_soldiers()
            return item.soldier_id in self._soldiers
        return item.task_id is not None and await self._active.has(item.task_id)

    async def _active_soldiers(self) -> set[str]:
        """Return the running soldiers, and the last soldiers of active tasks."""
        running = {soldier.id for soldier in await asyncio.to_thread(self._processes.soldiers) if soldier.running}
        for task_id in await asyncio.to_thread(self._old_results, self._section.session_logs_days, "-soldier-id"):
            if await self._active.has(task_id):
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    running.add(self._home.soldier_id(task_id).read_text("utf-8").strip())
        return running

    async def _kept_tasks(self) -> list[str]:
        """Return the finished tasks whose documents are kept: their question is open, and its answer needs them.

        Every such task has a result, which is kept for the same reason.
        """
        old = await asyncio.to_thread(self._old_results, self._section.queue_days, ".json")
        return [task_id for task_id in old if await self._active.has(task_id)]

    def _old_results(self, days: float, ending: str) -> list[str]:
        """Return the tasks that have a result file with this ending, older than ``days``."""
        rule = RetentionRule("results", ("state", "results"), re.compile(f"{TASK_ID_PATTERN}{re.escape(ending)}"), days)
        found = find_expired(self._home.root, rule, self._now, self._warn)
        return [item.task_id for item in found if item.task_id is not None]


def _queue_rules(days: float, invalid_days: float) -> list[RetentionRule]:
    """Return rules for the folders of finished documents, as the bus purges them."""
    form = re.compile(rf"{TASK_ID_PATTERN}\.json|[^.].*")
    return [
        RetentionRule(f"{stream}/{state}", ("queue", stream, state), form, max(days, least))
        for stream, finished in _FINISHED_STATES.items()
        for state, least in zip(finished, (0.0, invalid_days), strict=True)
    ]


def is_journal_read(home: Home, section: RetentionSection, now: float) -> bool:
    """Whether the chamberlain has counted and rolled up all lines of the closed journals that may be removed."""
    document = read_json(memory_path(home))
    if document is None:
        return not memory_path(home).exists()  # there never was a chamberlain: nobody waits for the lines
    try:
        cursors = [Cursor.from_dict(document["cursor"]), journal_position(home)]
    except (InvalidCursor, KeyError, TypeError, CourtError):
        return False
    expired = now - section.logs_days * DAY_SECONDS
    return all(_is_read(home, cursor, expired) for cursor in cursors if cursor is not None)


def _is_read(home: Home, cursor: Cursor, expired: float) -> bool:
    with Reader(home.journal, cursor=cursor, report=lambda problem: None) as reader:
        first = next(reader.read(), None)
    return first is None or first.at.timestamp() >= expired


_STEP_SECONDS: Final = 1.0  # of cleanup in one tick


class CleanupSchedule:
    def __init__(
        self, services: Services, processes: SoldierProcesses, memory: ChamberlainMemory, zone: ZoneInfo, warn: Warn
    ) -> None:
        self._services = services
        self._processes = processes
        self._memory = memory
        self._zone = zone
        self._warn = warn
        self._steps: AsyncIterator[int] | None = None
        self._day = ""  # the day of the cleanup under way
        self._removed = 0

    async def step(
        self, section: RetentionSection, now: float, emit: Callable[[EventData], None], *, with_journal: bool
    ) -> bool:
        """Clean for a moment, if a cleanup is due; return whether there is more to do."""
        if self._steps is None:
            self._day = last_due_day(now, section.at, self._zone).isoformat()
            if self._day <= (self._memory.cleaned or ""):
                return False
            services = self._services
            cleaning = Cleanup(services.home, services.bus, self._processes, section, now, self._warn)
            self._steps, self._removed = cleaning.run(with_journal=with_journal), 0
        until = time.monotonic() + _STEP_SECONDS
        try:
            async for removed in self._steps:
                self._removed += removed
                if time.monotonic() > until:
                    return True
        except BaseException:
            self._steps = None  # the next tick starts again
            raise
        self._steps = None
        self._memory.cleaned = self._day
        if self._removed:
            emit(RecoveryFilesCleaned(deleted_count=self._removed))
        return False


# ── log rotation ──────────────────────────────────────────────────────────────────────────────────────────────────

TEXT_LOGS: Final = ("system.log", "tasks.log", "metrics.log", "console.log")  # opened for each line
OUTPUT_LOG: Final = "supervisor.log"  # output of a court in the background: all its processes hold it open
METRICS_LOG: Final = "metrics.log"
_MIB: Final = 1024 * 1024


def rotate_logs(
    home: Home, now: datetime, max_bytes: int, emit: Callable[[EventData], None], warn: Callable[[str, str], None]
) -> None:
    """Rotate the journal by day and size, other logs by size; ``now`` is in the court's time zone.

    An error with one log does not stop the others.
    """
    turns: dict[str, Callable[[], Rotation | None]] = {
        home.journal.name: lambda: rotate(home.journal, now, max_bytes=max_bytes)
    }
    for name in TEXT_LOGS:
        turns[name] = lambda path=home.logs / name: rotate_to_old(path, max_bytes=max_bytes)  # type: ignore[misc]
    turns[OUTPUT_LOG] = lambda: copy_to_old(home.logs / OUTPUT_LOG, max_bytes=max_bytes)
    for name, turn in turns.items():
        try:
            done = turn()
        except (JournalError, OSError) as error:
            warn(f"rotate {name}", str(error))
        else:
            warn(f"rotate {name}", "")
            if done is not None:
                emit(RecoveryLogRotated(file=done.file.name, size_mb=round(done.size / _MIB, 3)))
