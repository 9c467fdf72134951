"""Work that was landed after its task had ended: ``kingdom task land`` notes it, and the king reads it.

A note is a file, ``state/landings/<task>.json``, with the fields of the result that have changed. A joined machine may
write neither the results nor the messages of the court: it reports the note to the machine that leads.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import encode_json, read_object, write_atomic
from kingdom.court.machines.exchange import publish_file
from kingdom.court.pull_requests import NOT_LANDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kingdom.court.config import MachineSection
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

LANDED_LATER: Final = "landed_later"
"""The field of a result with the link or branch that people were sent in a message of its own."""
_FIELDS: Final = ("task_id", "summary", "branch", "links", "pull_requests", "work_id")
_MAX_AGE_SECONDS: Final = 3600.0  # of a note that cannot be used yet: a report may be half written


async def note_landing(services: Services, machine: MachineSection | None, result: Mapping[str, Any]) -> None:
    """Let the king know where the work of a task is now. May be repeated."""
    path = services.home.landing(str(result["task_id"]))
    note = encode_json({name: result[name] for name in _FIELDS if name in result})
    if machine is not None:
        await publish_file(services.bus, machine.name, path.relative_to(services.home.root).as_posix(), note)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, note)


def noted_landings(home: Home) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the notes that the king has not read, by task."""
    for path in sorted(home.landings.glob("task-*.json")):
        yield path.stem, read_object(path)


def is_old(home: Home, task_id: str) -> bool:
    """Whether nothing will make a note usable any more."""
    try:
        return time.time() - home.landing(task_id).stat().st_mtime > _MAX_AGE_SECONDS
    except FileNotFoundError:
        return False


def landed_result(result: Mapping[str, Any], note: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with what a note says of it."""
    landed = {**result, **{name: note[name] for name in _FIELDS if name in note}}
    landed.pop(NOT_LANDED, None)
    return {**landed, LANDED_LATER: where_landed(landed)}


def where_landed(result: Mapping[str, Any]) -> str:
    """Return the link of a landed result, or its branch."""
    pulls = result.get("pull_requests")
    first = pulls[0] if isinstance(pulls, list) and pulls else None
    return str((first.get("url") if isinstance(first, dict) else None) or result.get("branch") or "")


def drop_landing(home: Home, task_id: str) -> None:
    """Remove a note."""
    home.landing(task_id).unlink(missing_ok=True)
