"""Which tasks are still in somebody's hands: nothing of them is removed, whatever its age."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.files import read_json
from kingdom.court.queues import EVENTS, TASKS

if TYPE_CHECKING:
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
        self._idle: bool | None = None
        self._book: bytes | None = None

    async def has(self, task_id: str) -> bool:
        """Whether the task is active."""
        if task_id not in self._known:
            self._known[task_id] = await self._look(await self._bus.find(task_id))
        return self._known[task_id]

    async def _look(self, record: Record | None) -> bool:
        if record is None or record.stream != TASKS:
            return False
        if _is_open(record):
            return True
        payload = record.envelope.payload
        cause = payload.get("event_id") if isinstance(payload, dict) else None
        if not isinstance(cause, str):
            return False
        if cause.startswith("schedule-"):
            return self._asked_by_schedule(record.envelope.event_id)
        if await self._no_event_is_open():
            return False
        event = await self._bus.find(cause)
        return event is not None and event.stream == EVENTS and _is_open(event)

    async def _no_event_is_open(self) -> bool:
        if self._idle is None:
            depth = (await self._bus.depth())[EVENTS]
            self._idle = depth.pending + depth.processing == 0
        return self._idle

    def _asked_by_schedule(self, task_id: str) -> bool:
        result = read_json(self._home.result(task_id))
        if not isinstance(result, dict) or result.get("status") != "needs_human":
            return False
        if self._book is None:
            try:
                self._book = (self._home.role("king") / ".book").read_bytes()
            except OSError:
                self._book = b""
        return task_id.encode() in self._book


def _is_open(record: Record) -> bool:
    return record.status in ("PENDING", "PROCESSING")
