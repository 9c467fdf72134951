"""``state/supervisor/pid.json``, and the identity of a process."""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from kingdom.agents.processes import boot_id, find_process, is_running, send
from kingdom.base.files import read_json, write_json

if TYPE_CHECKING:
    import signal
    from pathlib import Path

    from kingdom.court.home import Home


# Which process a number means.
#
# A process id is given out again after its process has ended, and after a reboot all of them are. So whoever writes one
# down writes down with it when the process began and which boot of the machine it was, and nobody sends a signal to a
# number alone.


_POLL_SECONDS: Final = 0.02  # seconds between two looks where the kernel has no handle on a process to wait for


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """One process, for as long as the machine runs and ever after."""

    pid: int
    start_time: int | None  # in the kernel's own ticks, which no setting of the clock changes
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has the number now."""
        found = find_process(pid)
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
            time.sleep(_POLL_SECONDS)
        return not self.alive


def own_process() -> ProcessHandle:
    """That of this process."""
    return ProcessHandle.of(os.getpid())


# ``state/supervisor/pid.json``: who supervises this court, and which processes it has started.


SUPERVISOR: Final = "supervisor"  # the name of its folder below state/
RoleProcessState = Literal["running", "waiting", "failed", "stopping"]


@dataclass(slots=True)
class RoleRecord:
    """What the supervisor knows of one role."""

    state: RoleProcessState
    process: ProcessHandle | None = None  # None between a death and the next start, and for a role without a process
    started_at: str | None = None
    deaths: int = 0  # in a row
    reason: str = ""  # why it died last

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "state": self.state,
            "process": None if self.process is None else self.process.document(),
            "started_at": self.started_at,
            "deaths": self.deaths,
            "reason": self.reason,
        }


@dataclass(slots=True)
class SupervisorRecord:
    """The whole file."""

    supervisor: ProcessHandle
    started_at: str
    mode: Literal["processes", "inline"]
    roles: dict[str, RoleRecord] = field(default_factory=dict)

    def write(self, home: Home) -> None:
        """Replace the file. Not waited for by the disk: after a power cut none of it is true any more."""
        document = {
            **self.supervisor.document(),
            "started_at": self.started_at,
            "mode": self.mode,
            "roles": {name: role.document() for name, role in sorted(self.roles.items())},
        }
        write_json(record_path(home), document, durable=False)


def record_path(home: Home) -> Path:
    """Where the file lies."""
    return home.role(SUPERVISOR) / "pid.json"


def read_record(home: Home) -> SupervisorRecord | None:
    """What was written down last, whether those processes still run or not; None when there is nothing usable."""
    document = read_json(record_path(home))
    supervisor = ProcessHandle.read(document)
    if supervisor is None or document is None:
        return None
    found = document.get("roles")
    roles = {name: _parse_role(entry) for name, entry in found.items()} if isinstance(found, dict) else {}
    mode: Literal["processes", "inline"] = "inline" if document.get("mode") == "inline" else "processes"
    return SupervisorRecord(supervisor, str(document.get("started_at", "")), mode, roles)


def running_supervisor(home: Home) -> SupervisorRecord | None:
    """The record of the supervisor that runs now, or None."""
    record = read_record(home)
    return record if record is not None and record.supervisor.alive else None


def _parse_role(entry: Any) -> RoleRecord:
    known = entry if isinstance(entry, dict) else {}
    state = known.get("state")
    return RoleRecord(
        state if state in ("running", "waiting", "failed", "stopping") else "waiting",
        ProcessHandle.read(known.get("process")),
        known.get("started_at"),
        known["deaths"] if isinstance(known.get("deaths"), int) else 0,
        str(known.get("reason") or ""),
    )
