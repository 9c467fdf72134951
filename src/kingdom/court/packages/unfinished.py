"""Which tasks of a general are not finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.court.config.system import load_system
from kingdom.court.files import read_json
from kingdom.court.queues import TASKS, open_queues

if TYPE_CHECKING:
    from kingdom.court.home import Home

_LOOK: Final = 1000


async def unfinished_tasks(home: Home, general: str) -> list[str]:
    """The ids of tasks of a general that wait or are held; of queues that are not files, only those that wait now."""
    url = load_system(home).queue_url(home)
    if url == home.queue_url:
        return sorted(
            path.stem
            for state in ("pending", "in_progress")
            for path in (home.queue / TASKS / state).glob("[!.]*.json")
            if isinstance(document := read_json(path), dict) and document.get("target_general") == general
        )
    async with open_queues(url) as bus:
        return [record.envelope.event_id for record in await bus.peek(TASKS, limit=_LOOK, types=[general])]
