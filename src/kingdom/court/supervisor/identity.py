"""Which process a number means.

A process id is given out again after its process has ended, and after a reboot all of them are. So whoever writes one
down writes down with it when the process began and which boot of the machine it was, and nobody sends a signal to a
number alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from kingdom.agents.processes import boot_id, is_running, look, send

if TYPE_CHECKING:
    import signal

_POLL: Final = 0.02  # seconds between two looks where the kernel has no handle on a process to wait for


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for as long as the machine runs and ever after."""

    pid: int
    start_time: int | None  # in the kernel's own ticks, which no setting of the clock changes
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has the number now."""
        found = look(pid)
        return cls(pid, None if found is None else found.start, boot_id())

    @classmethod
    def read(cls, document: Any) -> Self | None:
        """An identity as it was written down, or None when this is none."""
        if not isinstance(document, dict):
            return None
        pid, began, boot = (document.get(key) for key in ("pid", "start_time", "boot_id"))
        if isinstance(pid, int) and pid > 1 and isinstance(began, int | None) and isinstance(boot, str):
            return cls(pid, began, boot)
        return None

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    @property
    def alive(self) -> bool:
        """Whether this very process runs. One that has ended and was not waited for yet is not alive."""
        return self.boot_id == boot_id() and is_running(self.pid, self.start_time)

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; False when it is gone, whoever has its number now."""
        return self.boot_id == boot_id() and send(self.pid, self.start_time, number)

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, at most so long; True when it has."""
        until = time.monotonic() + seconds
        with contextlib.suppress(AttributeError, OSError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.alive:  # looked at once we have the handle: it is of the process we mean
                    select.select([handle], [], [], seconds)
            finally:
                os.close(handle)
        while self.alive and time.monotonic() < until:
            time.sleep(_POLL)
        return not self.alive


def own_identity() -> Identity:
    """That of this process."""
    return Identity.of(os.getpid())
