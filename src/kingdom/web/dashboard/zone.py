"""The time zone times are shown in: the court's own, else UTC."""

from __future__ import annotations

import asyncio
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from kingdom.court.config.system import load_system

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit

_FRESH: Final = 60.0  # seconds


async def zone_of(visit: Visit) -> tzinfo:
    """The time zone of the court."""
    services = visit.context.services
    if services is None:
        return UTC

    async def read() -> tzinfo:
        return ZoneInfo((await asyncio.to_thread(load_system, services.home)).timezone)

    return await visit.shared.read("zone", read, _FRESH)
