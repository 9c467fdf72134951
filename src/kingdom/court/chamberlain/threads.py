"""The envoy's thread mappings: it takes an entry out when the task has ended. One that stays is a sign of a fault."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import read_json
from kingdom.court.king.times import seconds_of

if TYPE_CHECKING:
    from kingdom.court.home import Home

STALE_DAYS: Final = 7
_TIMES: Final = ("created_at", "ts", "thread_ts")  # where an entry says when it was made, the best first
log = logging.getLogger("kingdom.court.chamberlain")


def warn_of_stale_threads(home: Home, warned: list[str], now: float) -> None:
    """Log a warning for each mapping older than a week, once; ``warned`` holds those that were told of."""
    found = read_json(home.role("envoy") / "thread-mappings.json")
    mappings: dict[str, Any] = found if isinstance(found, dict) else {}
    for task_id in sorted(mappings.keys() - set(warned)):
        made = _made_at(mappings[task_id])
        if made is not None and now - made > STALE_DAYS * 86400:
            days = (now - made) / 86400
            log.warning("the thread of %s is still mapped after %.0f days: has its task ended?", task_id, days)
            warned.append(task_id)
    warned[:] = [task_id for task_id in warned if task_id in mappings]


def _made_at(entry: Any) -> float | None:
    known = entry if isinstance(entry, dict) else {"thread_ts": entry}
    for key in _TIMES:
        value = known.get(key)
        seconds = seconds_of(value)
        if seconds is None and isinstance(value, str):
            try:
                seconds = float(value)  # as Slack names threads: 1707300000.123456
            except ValueError:
                continue
        if seconds is not None:
            return seconds
    return None
