"""One cleaning: batch by batch, so that whoever runs it can do something else between two of them.

A cleaning that is killed has removed what it has removed; the next one goes on with the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from kingdom.court.chamberlain.active import ActiveWork
from kingdom.court.chamberlain.memory import memory_path
from kingdom.court.chamberlain.retention import DAY, TASK_FORM, Expired, Rule, find_expired, remove, rules
from kingdom.court.documents import on_files
from kingdom.court.files import read_json
from kingdom.court.queues import EVENTS, MAX_DOCUMENT_BYTES, MESSAGES, STATES, TASKS
from kingdom.journal import Cursor, InvalidCursor, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kingdom.bus import EventBus
    from kingdom.court.chamberlain.config import RetentionSection
    from kingdom.court.chamberlain.retention import Warn
    from kingdom.court.chamberlain.soldiers import Barracks
    from kingdom.court.home import Home

BATCH: Final = 500
# The finished states of the queues as folders (kingdom.court.queues): done, and given up.
_FINISHED: Final = {
    EVENTS: ("completed", "invalid"),
    TASKS: ("completed", "invalid"),
    MESSAGES: ("sent", "failed"),
}


class Cleaning:
    """Finds what is past its time and in nobody's hands, and removes it."""

    def __init__(
        self, home: Home, bus: EventBus, barracks: Barracks, section: RetentionSection, now: float, warn: Warn
    ) -> None:
        self._home = home
        self._bus = bus
        self._section = section
        self._now = now
        self._warn = warn
        self._active = ActiveWork(home, bus)
        self._barracks = barracks
        self._soldiers: set[str] | None = None

    async def run(self, *, with_journal: bool = True) -> AsyncIterator[int]:
        """Remove everything, a batch for each step; yields how many went. ``with_journal``: its closed files too."""
        for rule in rules(self._section):
            async for batch in self._batches(rule):
                going = [item for item in batch if with_journal or not item.name.startswith("events-")]
                yield await asyncio.to_thread(remove, self._home.root, rule, going, self._now, self._warn)
        days, keep = self._section.queue_days, await self._kept_tasks()
        for stream in _FINISHED:
            yield await self._bus.purge(days * DAY, stream=stream, keep=keep)
            dead = max(days, self._section.invalid_days)
            yield await self._bus.purge(dead * DAY, stream=stream, dead=True, keep=keep)

    async def plan(self) -> AsyncIterator[Expired]:
        """What would go, with why."""
        files = on_files(self._bus)
        queues = _queue_rules(self._section.queue_days, self._section.invalid_days)
        for rule in (*rules(self._section), *(queues if files else ())):
            async for batch in self._batches(rule):
                for item in batch:
                    yield item
        if not files:
            async for item in self._in_database({rule.folder[1:]: rule for rule in queues}):
                yield item

    async def _in_database(self, queues: dict[tuple[str, ...], Rule]) -> AsyncIterator[Expired]:
        """The documents of the queues that the bus will remove."""
        keep = set(await self._kept_tasks())
        for stream in _FINISHED:
            async for record in self._bus.records(stream):
                event_id, ended = record.envelope.event_id, record.finished_at
                if ended is None or event_id in keep:
                    continue
                rule = replace(queues[stream, STATES[stream][record.status]], folder=(stream,))
                age = self._now - ended.timestamp()
                if age > rule.days * DAY:
                    size = len(record.envelope.to_json(MAX_DOCUMENT_BYTES))
                    yield Expired(rule, event_id, age, size, None, None)

    async def _batches(self, rule: Rule) -> AsyncIterator[list[Expired]]:
        """What may go by one rule, some hundreds at a time."""
        found = await asyncio.to_thread(lambda: list(find_expired(self._home.root, rule, self._now, self._warn)))
        rest = iter(found)
        while batch := list(islice(rest, BATCH)):
            yield [item for item in batch if not await self._is_active(item)]

    async def _is_active(self, item: Expired) -> bool:
        if item.soldier_id is not None:
            if self._soldiers is None:
                self._soldiers = await self._active_soldiers()
            return item.soldier_id in self._soldiers
        return item.task_id is not None and await self._active.has(item.task_id)

    async def _active_soldiers(self) -> set[str]:
        """Those that run, and the last ones of tasks that are active."""
        running = {soldier.id for soldier in await asyncio.to_thread(self._barracks.soldiers) if soldier.running}
        for task_id in await asyncio.to_thread(self._old_results, self._section.session_logs_days, "-soldier-id"):
            if await self._active.has(task_id):
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    running.add(self._home.soldier_id(task_id).read_text("utf-8").strip())
        return running

    async def _kept_tasks(self) -> list[str]:
        """Finished tasks whose documents stay: a question of theirs is open, and the answer goes on from them.

        Every such task has its result, which is kept for the same reason.
        """
        old = await asyncio.to_thread(self._old_results, self._section.queue_days, ".json")
        return [task_id for task_id in old if await self._active.has(task_id)]

    def _old_results(self, days: float, ending: str) -> list[str]:
        """The tasks of which a file of this kind is older than so many days."""
        rule = Rule("results", ("state", "results"), re.compile(f"{TASK_FORM}{re.escape(ending)}"), days)
        found = find_expired(self._home.root, rule, self._now, self._warn)
        return [item.task_id for item in found if item.task_id is not None]


def _queue_rules(days: float, invalid_days: float) -> list[Rule]:
    """The folders of finished documents, as the bus will clean them."""
    form = re.compile(rf"{TASK_FORM}\.json|[^.].*")
    return [
        Rule(f"{stream}/{state}", ("queue", stream, state), form, max(days, least))
        for stream, finished in _FINISHED.items()
        for state, least in zip(finished, (0.0, invalid_days), strict=True)
    ]


def journal_was_read(home: Home, section: RetentionSection, now: float) -> bool:
    """Whether the chamberlain has read every line that the closed files which may go can hold."""
    document = read_json(memory_path(home))
    if document is None:
        return not memory_path(home).exists()  # no chamberlain has ever been here: nobody waits for the lines
    try:
        cursor = Cursor.from_dict(document["cursor"])
    except (InvalidCursor, KeyError, TypeError):
        return False
    with Reader(home.journal, cursor=cursor, report=lambda problem: None) as reader:
        first = next(reader.read(), None)
    return first is None or first.at.timestamp() >= now - section.logs_days * DAY
