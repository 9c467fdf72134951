"""Requests to cancel a running task: the king writes one, and the general ends the soldier.

Each is a file, ``state/<general>/cancel/<task>.json``. A request may be written twice, and may come too late: the
general removes it when it has noted it in the task's progress, or when the task has ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kingdom.base.files import read_object, write_json
from kingdom.court.home import named_path

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

DEFAULT_REASON: Final = "cancelled"
_TASK_ID: Final = re.compile(r"task-\d{8}-\d{3,}")


def requests_folder(home: Home, general: str) -> Path:
    """Return the folder with the requests for a general."""
    return home.role(general) / "cancel"


def request_cancel(home: Home, general: str, task_id: str, reason: str) -> None:
    """Ask a general durably to cancel a task."""
    path = _path(home, general, task_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"task_id": task_id, "reason": reason})


def cancel_requests(home: Home, general: str) -> dict[str, str]:
    """Return the tasks to cancel, each with the reason."""
    found = {}
    for path in sorted(requests_folder(home, general).glob("task-*.json")):
        if _TASK_ID.fullmatch(path.stem):
            reason = read_object(path).get("reason")
            found[path.stem] = reason if isinstance(reason, str) and reason else DEFAULT_REASON
    return found


def drop_request(home: Home, general: str, task_id: str) -> None:
    """Remove a request that needs nothing more."""
    _path(home, general, task_id).unlink(missing_ok=True)


def _path(home: Home, general: str, task_id: str) -> Path:
    return named_path(requests_folder(home, general), "task", task_id, ".json")
