"""Which tasks of a general are not finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.config.system import load_system
from kingdom.court.files import read_json
from kingdom.court.queues import TASKS, open_queues

if TYPE_CHECKING:
    from kingdom.court.home import Home


async def unfinished_tasks(home: Home, general: str) -> list[str]:
    """The ids of tasks of a general that wait or are held."""
    url = load_system(home).queue_url(home)
    if url == home.queue_url:
        return sorted(
            path.stem
            for state in ("pending", "in_progress")
            for path in (home.queue / TASKS / state).glob("[!.]*.json")
            if isinstance(document := read_json(path), dict) and document.get("target_general") == general
        )
    async with open_queues(url) as bus:
        return [
            record.envelope.event_id
            async for record in bus.records(TASKS)
            if record.status in ("PENDING", "PROCESSING") and record.envelope.type == general
        ]
