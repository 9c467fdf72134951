"""What a machine knows about its own lead of the court: ``state/link/lead.json``.

The role ``link`` writes the file, the other roles read it. Nothing here needs the database.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.agents.processes import boot_id
from kingdom.base.files import read_object, write_json, write_once
from kingdom.base.uptime import uptime

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

LEASE_SECONDS: Final = 8.0
_MARGIN_SECONDS: Final = 1.0  # a holder stops acting this long before its lease ends


@dataclass(frozen=True, slots=True)
class OwnLead:
    """What a machine knows about its own lead."""

    leading: bool
    machine: str = ""
    """The machine that leads."""
    term: int = 0
    shared: bool = False
    """Whether another machine could take over: what this one does must be in the database before others see it."""
    until: float = 0.0
    """When the lease ends, by :func:`uptime`."""

    @property
    def sure(self) -> bool:
        """Whether no other machine can lead now."""
        return self.leading and (not self.shared or uptime() < self.until)


def lease_end(asked: float) -> float:
    """Return until when a holder acts that has asked for the lease at ``asked``."""
    return asked + LEASE_SECONDS - _MARGIN_SECONDS


def write_lead(home: Home, lead: OwnLead) -> None:
    """Let the other roles of this machine know."""
    document = {"leading": lead.leading, "machine": lead.machine, "term": lead.term, "shared": lead.shared}
    home.role("link").mkdir(parents=True, exist_ok=True)
    write_json(_lead_path(home), {**document, "until": lead.until, "boot_id": boot_id()}, durable=False)


def read_lead(home: Home) -> OwnLead | None:
    """Return what this machine knows; None when it has not asked since it was started."""
    found = read_object(_lead_path(home))
    if found.get("boot_id") != boot_id():
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return OwnLead(
            found["leading"] is True,
            str(found["machine"]),
            int(found["term"]),
            found["shared"] is True,
            float(found["until"]),
        )
    return None


def known_leader(home: Home) -> str | None:
    """Return which other machine leads, as far as this one knows; None when it leads itself, or nobody has asked."""
    lead = read_lead(home)
    if lead is not None:
        return None if lead.leading else lead.machine or "another machine"
    follows = (home.role("link") / "replica.json").exists() and not (home.role("link") / "led.json").exists()
    return "another machine" if follows else None  # the court is down here


def forget_lead(home: Home) -> None:
    """Forget what former processes of this machine knew, when new ones are started."""
    _lead_path(home).unlink(missing_ok=True)


def holder_id(home: Home, machine: str) -> str:
    """Return the id under which this home holds the lease: a copy of the home elsewhere must not use it."""
    folder = home.role("link")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "instance"
    if not path.exists():
        write_once(path, secrets.token_hex(8))
    return f"{machine}/{path.read_text(encoding='ascii')}"


def forget_holder(home: Home) -> None:
    """Make a copy of a home forget under which id the original holds the lease, and what it knew about it."""
    for name in ("instance", "lead.json", "led.json", "replica.json"):
        (home.role("link") / name).unlink(missing_ok=True)


def _lead_path(home: Home) -> Path:
    return home.role("link") / "lead.json"
