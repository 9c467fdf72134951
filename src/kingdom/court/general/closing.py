"""The end of a task: the result first and durably, then everything that follows from it.

Each step may be repeated: a process that died, or found the disk full, between two of them begins again at the first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from kingdom.court.files import encode, read_json
from kingdom.court.general.memory import remember
from kingdom.court.general.results import journal_entry, log_line
from kingdom.court.general.soldiers import clear_room, session
from kingdom.court.journal_tail import untold
from kingdom.court.models import Result

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.general.campaign import Parked
    from kingdom.court.general.quarters import Quarters
    from kingdom.court.home import Home

_UNKNOWN_RESET: Final = 300.0  # seconds a task is parked when nobody knows when the limit ends
_PARKING: Final = (5.0, 8 * 86400.0)  # seconds: at least, at most
_JITTER: Final = 30.0  # so that not all who wait for one limit come back at once


def known_result(quarters: Quarters, task_id: str) -> Result | None:
    """The result of a task that has one."""
    document = read_json(quarters.home.result(task_id))
    try:
        return None if document is None else Result.model_validate(document)
    except ValidationError:
        return None


async def write_down(quarters: Quarters, *results: Result) -> dict[str, OSError]:
    """Make results known, all of them at once; return what kept some from being known, by task.

    Those are to be done again.
    """
    troubles: dict[str, OSError] = {}
    again = {result.task_id for result in results if known_result(quarters, result.task_id) is not None}
    new = {result.task_id: _files(quarters.home, result) for result in results if result.task_id not in again}
    try:
        if new:
            await quarters.scribe.write(*(file for files in new.values() for file in files))
    except OSError:
        for task_id, files in new.items():  # one of them may be what does not fit
            try:
                await quarters.scribe.write(*files)
            except OSError as error:
                troubles[task_id] = error
    for result in results:
        if result.task_id not in troubles:
            try:
                _follow_up(quarters, result, again=result.task_id in again)
            except OSError as error:
                troubles[result.task_id] = error
    return troubles


def _files(home: Home, result: Result) -> list[tuple[Path, bytes]]:
    files = [(home.result(result.task_id), encode(result.document()))]
    if result.session_id and result.status == "needs_human":  # it is going to be resumed
        path, content = session(home, result.task_id, result.session_id)
        files.insert(0, (path, content.encode()))
    return files


def _follow_up(quarters: Quarters, result: Result, *, again: bool) -> None:
    home = quarters.home
    clear_room(home, result.task_id)
    day = result.ended_at.date().isoformat()
    memory = home.general_memory(quarters.name)
    remember(memory, result.task_id, day, result.memory_updates, quarters.manifest.memory_max_bytes)
    entry = journal_entry(result)
    if not again or untold(home.journal, [(entry.spec.name, entry.to_dict())]):
        log_line(home, result, quarters.clock())
        quarters.tell(entry)


def parking_time(quarters: Quarters, parked: Parked) -> float:
    """How many seconds a task over its limit waits."""
    left = _UNKNOWN_RESET
    if parked.resets_at is not None and math.isfinite(parked.resets_at):
        left = min(max(parked.resets_at - quarters.clock(), _PARKING[0]), _PARKING[1])
    return left + quarters.habits.random() * min(_JITTER, 1 + left / 10)
