"""What is over without a message having said so: threads, questions and requests of people that ended silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.documents import answered
from kingdom.court.envoy.slack.courtesies import DONE, FAILED, SEEN
from kingdom.court.envoy.slack.words import own
from kingdom.court.journal_tail import journal_tail
from kingdom.court.queues import MESSAGES

if TYPE_CHECKING:
    from kingdom.court.envoy.slack.desk import Desk

_EVERY: Final = 60.0  # seconds
_IN_VIEW: Final = 1000


class Housekeeping:
    """Looks once a minute."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looked = desk.clock()

    async def look(self) -> None:
        """Take out what is over."""
        desk, now = self._desk, self._desk.clock()
        if now - self._looked < _EVERY:
            return
        self._looked = now
        desk.posts.prune(now)
        threads = desk.threads
        mappings, awaiting, received = threads.mappings.all(), threads.awaiting.all(), threads.received.all()
        over = await self._over(
            {str(one.get("event_id")) for one in (*mappings.values(), *awaiting.values())} | {*received}
        )
        for task_id, entry in awaiting.items():
            if entry.get("event_id") in over or self._answered(task_id):
                await desk.close_question(task_id, own(desk.locale, "elsewhere"))
        threads.mappings.remove([task for task, entry in mappings.items() if entry.get("event_id") in over])
        for event_id in received.keys() & over.keys():
            self._show_end(event_id, received[event_id], over[event_id])
        threads.received.remove(over)

    async def _over(self, event_ids: set[str]) -> dict[str, str | None]:
        """The events that are completed and of which nothing is left to be said, with their outcomes."""
        bus, found = self._desk.services.bus, {}
        for event_id in event_ids - {"None", ""}:
            record = await bus.find(event_id)
            if record is None or record.status in ("DONE", "DEAD"):
                found[event_id] = None if record is None else record.outcome
        if found:
            for waiting in await bus.peek(MESSAGES, limit=_IN_VIEW):
                context = waiting.envelope.payload.get("context") or {}
                found.pop(str(context.get("event_id")), None)
        return found

    def _answered(self, task_id: str) -> bool:
        return answered(self._desk.services.home, task_id)

    def _show_end(self, event_id: str, entry: dict[str, Any], outcome: str | None) -> None:
        desk, place = self._desk, (entry["channel"], entry["ts"])
        for line in journal_tail(desk.services.home.journal):
            if line.type == "event.discarded" and line.fields.get("event_id") == event_id:
                desk.courtesies.owe("reactions.remove", channel=place[0], timestamp=place[1], name=SEEN)
                text = own(desk.locale, "nobody", type=str(line.fields.get("event_type")))
                desk.courtesies.whisper(place[0], entry["user"], text, entry.get("thread_ts"))
                return
        desk.courtesies.mark(*place, FAILED if outcome == "failed" else DONE)
