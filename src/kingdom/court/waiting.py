"""Waiting until something is known of an event: its end, or a question on the way."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.court.documents import all_documents
from kingdom.court.files import read_json
from kingdom.court.queues import EVENTS, TASKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.court.documents import Stored
    from kingdom.court.loop import Services

_LOOK: Final = 1.0  # seconds between looks when nothing wakes us


@dataclass(frozen=True, slots=True)
class Known:
    """What became of an event. ``status`` is the event's own, or ``needs_human``."""

    event_id: str
    status: str
    task_id: str | None = None
    result: str | None = None  # the status of the last task's result
    summary: str = ""

    @property
    def good(self) -> bool:
        """Whether it ended as it should."""
        return self.status == "completed" and self.result in (None, "success", "skipped")


async def wait_for_end(services: Services, event_id: str) -> Known:
    """Return when an event has ended, or a person is asked because of it."""
    woken = asyncio.Event()
    undo = services.bus.subscribe(EVENTS, woken.set)
    try:
        while True:
            woken.clear()
            if (known := await _look(services, event_id)) is not None:
                return known
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with what it waits for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await woken.wait()
    finally:
        undo()


async def _look(services: Services, event_id: str) -> Known | None:
    record = await services.bus.find(event_id)
    if record is None:
        return Known(event_id, "unknown")
    if record.status == "DEAD":
        return Known(event_id, "invalid", summary=record.error_message or "")
    if record.status == "PENDING":
        return None
    task_id = last_task(await all_documents(services, (TASKS,)), event_id)
    result = read_json(services.home.result(task_id)) if task_id else None
    found = result if isinstance(result, dict) else {}
    if record.status == "DONE":
        summary = found.get("summary") or found.get("error") or ""
        return Known(event_id, str(record.envelope.payload.get("status")), task_id, found.get("status"), str(summary))
    if found.get("status") == "needs_human":
        question = found.get("question")
        text = question.get("text") if isinstance(question, dict) else found.get("summary")
        return Known(event_id, "needs_human", task_id, "needs_human", str(text))
    return None


def last_task(tasks: Iterable[Stored], event_id: str) -> str | None:
    """The last of the tasks an event led to; those that went on after an answer belong to it, too."""
    last: str | None = None
    for task in sorted(tasks, key=lambda item: item.id):
        payload = task.document.get("payload")
        goes_on = isinstance(payload, dict) and last is not None and payload.get("original_task_id") == last
        if goes_on or task.document.get("event_id") == event_id:
            last = task.id
    return last
