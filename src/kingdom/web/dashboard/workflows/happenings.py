"""The events of a workflow, in their order, as they happen."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kingdom.web.dashboard.building import tag, text
from kingdom.web.dashboard.building.formats import clock
from kingdom.web.views.workflows import WorkflowEvent, read_events
from kingdom.workflow.telling import about, names_of, news

if TYPE_CHECKING:
    from datetime import tzinfo

    from nicegui import ui

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.workflows import Work

_PAGE: Final = 500
_MOST: Final = 100  # events that stay on the page
_WIDEST: Final = 22  # characters of most types
_CLASSES: Final = {"bad": "k-text-bad", "good": "k-text-ok", "plain": ""}


class Feed:
    """Reads the events of a workflow, each once."""

    def __init__(self, visit: Visit, workflow_id: str) -> None:
        self._visit = visit
        self._workflow = workflow_id
        self._after = 0

    async def read_on(self) -> list[WorkflowEvent]:
        """What happened since the last time."""
        found: list[WorkflowEvent] = []
        more = True
        while more:
            page = await read_events(self._visit.context, self._workflow, after=self._after, limit=_PAGE)
            found += page.items
            self._after = page.items[-1].sequence if page.items else self._after
            more = page.next_cursor is not None
        return found


class EventLog:
    """The last events on a page; the newest on top."""

    def __init__(self, visit: Visit, zone: tzinfo) -> None:
        self._zone = zone
        self._shown: deque[ui.label] = deque()
        self._place = tag("ol", "k-events", role="log", tabindex="0", aria_label=visit.words("workflow.events"))

    def add(self, events: list[WorkflowEvent], works: list[Work]) -> None:
        """Show further events."""
        names = names_of(works)
        with self._place:
            for event in events[-_MOST:]:
                line = _line(event, names, self._zone)
                line.move(target_index=0)
                self._shown.append(line)
        while len(self._shown) > _MOST:
            self._shown.popleft().delete()


def _line(event: WorkflowEvent, names: dict[str, str], zone: tzinfo) -> ui.label:
    """One element for each: there are many, and each costs the server as much as a whole card."""
    at = clock(event.occurred_at.timestamp(), zone)
    words = f"{event.sequence:>4}  {at}  {event.type:<{_WIDEST}}  {about(event, names)}"
    return text(words, _CLASSES[news(event)], name="li")
