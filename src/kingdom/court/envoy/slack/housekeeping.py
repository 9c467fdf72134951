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
_AT_ONCE: Final = 50  # events that are looked for in one look; each takes two reads of a folder


class Housekeeping:
    """Looks once a minute."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looked = desk.clock()
        self._last = ""  # event that was looked at

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
            if entry.get("event_id") in over or await answered(desk.services, task_id):
                await desk.close_question(task_id, own(desk.locale, "elsewhere"))
        threads.mappings.remove([task for task, entry in mappings.items() if entry.get("event_id") in over])
        if ended := received.keys() & over.keys():
            discarded = self._discarded()
            for event_id in ended:
                self._show_end(received[event_id], over[event_id], discarded.get(event_id))
        threads.received.remove(over)

    async def _over(self, event_ids: set[str]) -> dict[str, str | None]:
        """The events that are completed and of which nothing is left to be said, with their outcomes."""
        bus, found = self._desk.services.bus, {}
        for event_id in self._some(event_ids - {"None", ""}):
            record = await bus.find(event_id)
            if record is None or record.status in ("DONE", "DEAD"):
                found[event_id] = None if record is None else record.outcome
        if found:
            for waiting in await bus.peek(MESSAGES, limit=_IN_VIEW):
                context = waiting.envelope.payload.get("context") or {}
                found.pop(str(context.get("event_id")), None)
        return found

    def _some(self, event_ids: set[str]) -> list[str]:
        """As many as are looked at now. There is no hurry: what is worth telling is told by messages."""
        ordered = sorted(event_ids)
        start = next((place for place, one in enumerate(ordered) if one > self._last), 0)
        some = (ordered[start:] + ordered[:start])[:_AT_ONCE]
        self._last = some[-1] if some else ""
        return some

    def _discarded(self) -> dict[str, str]:
        """The events that nobody took lately, with their types."""
        lines = journal_tail(self._desk.services.home.journal)
        told = [line.fields for line in lines if line.type == "event.discarded"]
        return {str(fields.get("event_id")): str(fields.get("event_type")) for fields in told}

    def _show_end(self, entry: dict[str, Any], outcome: str | None, discarded: str | None) -> None:
        desk, place = self._desk, (entry["channel"], entry["ts"])
        if discarded is None:
            desk.courtesies.mark(*place, FAILED if outcome == "failed" else DONE)
            return
        desk.courtesies.owe("reactions.remove", channel=place[0], timestamp=place[1], name=SEEN)
        text = own(desk.locale, "nobody", type=discarded)
        desk.courtesies.whisper(place[0], entry["user"], text, entry.get("thread_ts"))
