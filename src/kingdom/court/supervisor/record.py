"""``state/supervisor/pid.json``: the supervisor of a court and its processes, each with a safe handle.

The system reuses process ids, after a reboot all of them. So a stored pid comes with the start time of the process and
the id of the boot, and no signal is sent to a pid alone.
"""

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


_POLL_SECONDS: Final = 0.02  # where the kernel has no pidfd to wait for


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """A handle on one process that stays correct when its pid is reused."""

    pid: int
    start_time: int | None  # in kernel ticks, which do not depend on the clock
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return a handle on the process that has this pid now."""
        found = find_process(pid)
        return cls(pid, None if found is None else found.start, boot_id())

    @classmethod
    def read(cls, document: Any) -> Self | None:
        """Read a handle from JSON; None when it is invalid."""
        if not isinstance(document, dict):
            return None
        pid, began, boot = (document.get(key) for key in ("pid", "start_time", "boot_id"))
        if isinstance(pid, int) and pid > 1 and isinstance(began, int | None) and isinstance(boot, str):
            return cls(pid, began, boot)
        return None

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def alive(self) -> bool:
        """Whether this very process runs. A zombie is not alive."""
        return self.boot_id == boot_id() and is_running(self.pid, self.start_time)

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; return False when it has ended, even if its pid was reused."""
        return self.boot_id == boot_id() and send(self.pid, self.start_time, number)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until it has ended; return whether it has."""
        until = time.monotonic() + seconds
        with contextlib.suppress(AttributeError, OSError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.alive:  # checked after opening the pidfd: so it belongs to the right process
                    select.select([handle], [], [], seconds)
            finally:
                os.close(handle)
        while self.alive and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return not self.alive


def own_process() -> ProcessHandle:
    return ProcessHandle.of(os.getpid())


SUPERVISOR: Final = "supervisor"  # the name of its folder in state/
RoleProcessState = Literal["running", "waiting", "failed", "stopping"]


@dataclass(slots=True)
class RoleRecord:
    """The supervisor's state of one role."""

    state: RoleProcessState
    process: ProcessHandle | None = None  # None between a death and the next start, and for an inline role
    started_at: str | None = None
    deaths: int = 0  # in a row
    reason: str = ""  # why it died last
    crashes: int = 0  # since the supervisor started; a role that is stopped on purpose does not crash

    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "process": None if self.process is None else self.process.document(),
            "started_at": self.started_at,
            "deaths": self.deaths,
            "reason": self.reason,
            "crashes": self.crashes,
        }


@dataclass(slots=True)
class SupervisorRecord:
    supervisor: ProcessHandle
    started_at: str
    mode: Literal["processes", "inline"]
    roles: dict[str, RoleRecord] = field(default_factory=dict)

    def write(self, home: Home) -> None:
        """Replace the file. It is not synced: after a power cut none of these processes exists."""
        document = {
            **self.supervisor.document(),
            "started_at": self.started_at,
            "mode": self.mode,
            "roles": {name: role.document() for name, role in sorted(self.roles.items())},
        }
        write_json(record_path(home), document, durable=False)


def record_path(home: Home) -> Path:
    return home.role(SUPERVISOR) / "pid.json"


def read_record(home: Home) -> SupervisorRecord | None:
    """Read the last record, whether its processes still run or not; None when there is no valid record."""
    document = read_json(record_path(home))
    supervisor = ProcessHandle.read(document)
    if supervisor is None or document is None:
        return None
    found = document.get("roles")
    roles = {name: _parse_role(entry) for name, entry in found.items()} if isinstance(found, dict) else {}
    mode: Literal["processes", "inline"] = "inline" if document.get("mode") == "inline" else "processes"
    return SupervisorRecord(supervisor, str(document.get("started_at", "")), mode, roles)


def running_supervisor(home: Home) -> SupervisorRecord | None:
    """Return the record of the running supervisor, or None."""
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
        known["crashes"] if isinstance(known.get("crashes"), int) else 0,
    )
