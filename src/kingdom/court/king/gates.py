"""What must agree before a task may start: each gate knows one reason to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from kingdom.court.files import read_json
from kingdom.court.king.times import seconds_of

if TYPE_CHECKING:
    from kingdom.court.home import Home

STALE_HEALTH_SECONDS: Final = 300.0
_ALLOWED: Final = {
    "green": ("high", "normal", "low"),
    "yellow": ("high", "normal"),
    "orange": ("high",),
    "red": (),
}


class Gate(Protocol):
    """Something that may refuse the start of a task. What it refuses waits; nothing is dropped."""

    def refusal(self, general: str, priority: str, now: float) -> str | None:
        """Why a task of this priority for this general may not start now, in words for a person; None when it may."""


@runtime_checkable
class Reserving(Gate, Protocol):
    """A gate that counts what was let through (a budget)."""

    def reserve(self, task_id: str, general: str, now: float) -> Any:
        """A task was made."""

    def release(self, task_id: str) -> Any:
        """It has ended."""


class HealthGate:
    """Holds work back when the machine is not well, by what the chamberlain wrote.

    No file: nobody watches, all is taken to be well. An old or unreadable one: the watcher may be dead, so only what
    is urgent starts.
    """

    def __init__(self, home: Home) -> None:
        self._path = home.role("chamberlain") / "health.json"
        self._seen: tuple[int, int] | None = None
        self._health: dict[str, Any] = {}

    def refusal(self, general: str, priority: str, now: float) -> str | None:
        """Why health forbids the start."""
        level, why = self.level(now)
        return None if priority in _ALLOWED[level] else f"health is {level}" + (f" ({why})" if why else "")

    def level(self, now: float) -> tuple[str, str]:
        """The level that counts now, and why."""
        try:
            found = self._path.stat()
        except OSError:
            return "green", ""
        if self._seen != (found.st_mtime_ns, found.st_ino):
            document = read_json(self._path)
            self._health = document if isinstance(document, dict) else {}
            self._seen = (found.st_mtime_ns, found.st_ino)
        level, written = self._health.get("level"), seconds_of(self._health.get("ts"))
        if level not in _ALLOWED or written is None:
            return "orange", f"{self._path.name} is not readable"
        if now - written > STALE_HEALTH_SECONDS and level in ("green", "yellow"):
            return "orange", f"the last {level} is {now - written:.0f} s old"
        return str(level), str(self._health.get("reason") or "")
