"""From what was found to the queue: each event once, whatever was killed when, with a hash of what it said then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kingdom.court.journal_tail import untold
from kingdom.court.queues import put
from kingdom.court.trust.frozen import freeze
from kingdom.journal import JournalError
from kingdom.journal.catalog import EventDetected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.court.loop import Services
    from kingdom.court.models import Event
    from kingdom.court.sentinel.seen import Seen

ACTOR: Final = "sentinel"
log = logging.getLogger("kingdom.court.sentinel")


class Emitter:
    """Puts events into the queue and remembers them, in this order."""

    def __init__(self, services: Services, seen: Seen) -> None:
        self._services = services
        self._seen = seen

    async def emit(self, events: Iterable[Event]) -> list[str]:
        """Make new events durable; returns the ids of those that were not there before."""
        now = self._services.clock()
        fresh: dict[str, Event] = {}
        for event in events:
            if event.id not in fresh and not self._seen.knows(event.id, now):
                fresh[event.id] = event
        if not fresh:
            return []
        frozen = [event.model_copy(update={"payload": freeze(event.payload)}) for event in fresh.values()]
        accepted = await put(self._services.bus, frozen)
        self._write_down(fresh, set(accepted))
        self._seen.add(fresh, now)
        return accepted

    def _write_down(self, fresh: dict[str, Event], accepted: set[str]) -> None:
        """One line for each; for those that lay in the queue already, if whoever put them there was killed before."""
        lines = {event.id: EventDetected(event.id, event.source, event.type) for event in fresh.values()}
        known = [(line.spec.name, line.to_dict()) for name, line in lines.items() if name not in accepted]
        missing = {str(data["event_id"]) for _, data in untold(self._services.home.journal, known)} if known else set()
        try:
            for name, line in lines.items():
                if name in accepted or name in missing:
                    self._services.journal.emit(line, ACTOR)
        except JournalError as error:  # they are in the queue: work goes on
            log.warning("events were emitted, but the journal does not take them: %s", error)
