"""Requests to cancel a running task: the king writes one, and the general ends the soldier.

Each is a file, ``state/<general>/cancel/<task>.json``. A request may be written twice, and may come too late: the
general removes it when it has noted it in the task's progress, or when the task has ended. With a ``note`` the general
also posts a comment for the requester, and removes the request when that reply is on the disk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.base.files import read_object, write_json
from kingdom.court.home import named_path

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

DEFAULT_REASON: Final = "cancelled"
NOTE_FIELD: Final = "note"
"""The field of a command, a result of the king and a request: see :class:`CancelRequest`."""
_TASK_ID: Final = re.compile(r"task-\d{8}-\d{3,}")


class CancelRequest(NamedTuple):
    """Why a task is to be ended."""

    reason: str  # for the court
    note: str | None = None
    """The reason to post for the requester; may be empty. None: post nothing, as the requester cancelled it."""


def requests_folder(home: Home, general: str) -> Path:
    """Return the folder with the requests for a general."""
    return home.role(general) / "cancel"


def request_cancel(home: Home, general: str, task_id: str, reason: str, note: str | None = None) -> None:
    """Ask a general durably to cancel a task."""
    path = _path(home, general, task_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"task_id": task_id, "reason": reason, **({} if note is None else {NOTE_FIELD: note})})


def cancel_requests(home: Home, general: str) -> dict[str, CancelRequest]:
    """Return the tasks to cancel, each with the reason."""
    found = {}
    for path in sorted(requests_folder(home, general).glob("task-*.json")):
        if _TASK_ID.fullmatch(path.stem):
            document = read_object(path)
            reason, note = document.get("reason"), document.get(NOTE_FIELD)
            found[path.stem] = CancelRequest(
                reason if isinstance(reason, str) and reason else DEFAULT_REASON,
                note if isinstance(note, str) else None,
            )
    return found


def drop_request(home: Home, general: str, task_id: str) -> None:
    """Remove a request that needs nothing more."""
    _path(home, general, task_id).unlink(missing_ok=True)


def _path(home: Home, general: str, task_id: str) -> Path:
    return named_path(requests_folder(home, general), "task", task_id, ".json")
