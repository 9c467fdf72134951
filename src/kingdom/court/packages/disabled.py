"""Generals that a person has disabled: ``state/disabled.json``.

A disabled general starts nothing. Its events and schedules wait, and what it has begun ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import ChangeDetector, read_object, write_json
from kingdom.base.locks import exclusive
from kingdom.court.errors import UnknownGeneral
from kingdom.court.machines.capacity import require_lead
from kingdom.court.models import timestamp
from kingdom.journal.catalog import SystemGeneralDisabled, SystemGeneralEnabled

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.loop import Services

_FILE_NAME: Final = "disabled.json"


class DisabledGenerals:
    """The disabled generals, read again when the file has changed.

    For the king it is a :class:`~kingdom.court.king.admission.Gate`.
    """

    def __init__(self, home: Home) -> None:
        self._path = _path(home)
        self._changes = ChangeDetector(self._path)
        self._known: dict[str, Any] = {}

    def __contains__(self, general: str) -> bool:
        if self._changes.changed():
            self._known = read_object(self._path)
        return general in self._known

    def refusal(self, general: str, priority: str, now: float) -> str | None:
        """Say that a general is disabled; None when it is not."""
        return f"{general} is disabled: kingdom general enable {general}" if general in self else None


async def switch_general(services: Services, name: str, *, enabled: bool, user: str) -> bool:
    """Enable or disable a general; return False when it was so already.

    Raises :class:`UnknownGeneral`, and what :func:`require_lead` does on a machine that does not lead.
    """
    home = services.home
    require_lead(home)
    if not home.general(name).is_dir():
        raise UnknownGeneral(f"there is no general {name!r} in {home.generals}: kingdom general ls lists them")
    changed = await asyncio.to_thread(_switch, home, name, enabled, {"user": user, "at": timestamp(services.clock())})
    if changed:
        made = SystemGeneralEnabled(name, user) if enabled else SystemGeneralDisabled(name, user)
        services.journal.emit(made, "envoy")
    return changed


def forget_general(home: Home, name: str) -> None:
    """Forget that a general was disabled: it was removed."""
    known = read_object(_path(home))
    if name in known:
        del known[name]
        write_json(_path(home), known)


def _switch(home: Home, name: str, enabled: bool, note: dict[str, str]) -> bool:
    with exclusive(home.generals / ".lock"):
        known = read_object(_path(home))
        if (name not in known) == enabled:
            return False
        if enabled:
            del known[name]
        else:
            known[name] = note
        home.state.mkdir(parents=True, exist_ok=True)
        write_json(_path(home), known)
    return True


def _path(home: Home) -> Path:
    return home.state / _FILE_NAME
