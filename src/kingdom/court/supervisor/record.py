"""``state/supervisor/pid.json``: who supervises this court, and which processes it has started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from kingdom.court.files import read_json, write_json
from kingdom.court.supervisor.identity import Identity

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

ROLE: Final = "supervisor"  # the name of its folder below state/
State = Literal["running", "waiting", "failed", "stopping"]


@dataclass(slots=True)
class RoleRecord:
    """What the supervisor knows of one role."""

    state: State
    process: Identity | None = None  # None between a death and the next start, and for a role without a process
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
class Record:
    """The whole file."""

    supervisor: Identity
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
        write_json(path_of(home), document, durable=False)


def path_of(home: Home) -> Path:
    """Where the file lies."""
    return home.role(ROLE) / "pid.json"


def read_record(home: Home) -> Record | None:
    """What was written down last, whether those processes still run or not; None when there is nothing usable."""
    document = read_json(path_of(home))
    supervisor = Identity.read(document)
    if supervisor is None or document is None:
        return None
    found = document.get("roles")
    roles = {name: _role(entry) for name, entry in found.items()} if isinstance(found, dict) else {}
    mode: Literal["processes", "inline"] = "inline" if document.get("mode") == "inline" else "processes"
    return Record(supervisor, str(document.get("started_at", "")), mode, roles)


def running(home: Home) -> Record | None:
    """The record of the supervisor that runs now, or None."""
    record = read_record(home)
    return record if record is not None and record.supervisor.alive else None


def _role(entry: Any) -> RoleRecord:
    known = entry if isinstance(entry, dict) else {}
    state = known.get("state")
    return RoleRecord(
        state if state in ("running", "waiting", "failed", "stopping") else "waiting",
        Identity.read(known.get("process")),
        known.get("started_at"),
        known["deaths"] if isinstance(known.get("deaths"), int) else 0,
        str(known.get("reason") or ""),
    )
