"""Which tasks are still in somebody's hands: nothing of them is removed, whatever its age."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from kingdom.court.files import read_json
from kingdom.court.queues import EVENTS, TASKS

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.bus.delivery import Record
    from kingdom.court.home import Home


class ActiveWork:
    """Looks tasks up, for the length of one cleaning.

    A task is active while it waits or is in progress, and after that for as long as its event is: a question may be
    open, and the answer goes on from what the task left. A task of a schedule has no event; if it asked a question, it
    is active while the king has it in hand.
    """

    def __init__(self, home: Home, bus: EventBus) -> None:
        self._home = home
        self._bus = bus
        self._known: dict[str, bool] = {}
        self._open: bool | None = None  # whether any event or task is
        self._in_hand: set[str] = set()  # tasks that the king's book names

    async def has(self, task_id: str) -> bool:
        """Whether the task is active."""
        if self._open is None:
            depths = await self._bus.depth()
            self._open = any(depths[stream].pending + depths[stream].processing for stream in (EVENTS, TASKS))
            self._in_hand = await asyncio.to_thread(_tasks_in, self._home.role("king") / ".book")
        if not self._open and task_id not in self._in_hand:
            return False  # the usual case at night, and there may be very many of them
        if task_id not in self._known:
            self._known[task_id] = await self._look(await self._bus.find(task_id))
        return self._known[task_id]

    async def _look(self, record: Record | None) -> bool:
        if record is None or record.stream != TASKS:
            return False
        if _is_open(record):
            return True
        payload, task_id = record.envelope.payload, record.envelope.event_id
        cause = payload.get("event_id") if isinstance(payload, dict) else None
        if not isinstance(cause, str):
            return False
        if cause.startswith("schedule-"):
            result = read_json(self._home.result(task_id)) if task_id in self._in_hand else None
            return isinstance(result, dict) and result.get("status") == "needs_human"
        event = await self._bus.find(cause)
        return event is not None and event.stream == EVENTS and _is_open(event)


def _tasks_in(book: Path) -> set[str]:
    try:
        return {found.decode() for found in re.findall(rb"task-\d{8}-\d{3,}", book.read_bytes())}
    except OSError:
        return set()


def _is_open(record: Record) -> bool:
    return record.status in ("PENDING", "PROCESSING")
