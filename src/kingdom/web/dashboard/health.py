"""The health of the court, as the badge of every page shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kingdom.web.views.keeping import desk_of

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


async def health_of(visit: Visit) -> tuple[str, str]:
    """The level (green, yellow, orange, red), and why."""

    async def read() -> tuple[str, str]:
        return await asyncio.to_thread(desk_of(visit.context).health.level, visit.context.clock())

    return await visit.shared.read("health", read)
