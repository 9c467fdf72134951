"""Lines of the journal that a former process may have written already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.journal_tail import journal_tail

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.journal.registry import EventData


def emit_once(services: Services, event: EventData) -> None:
    """Write a line, unless it is among the last ones."""
    fields = event.to_dict()
    lines = journal_tail(services.home.journal)
    if not any(line.type == event.spec.name and line.fields == fields for line in lines):
        services.journal.emit(event, "envoy")
