"""The health of the court, as the badge of every page shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.king.gates import HealthGate

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


async def health_of(visit: Visit) -> tuple[str, str]:
    """The level (green, yellow, orange, red), and why."""

    async def read() -> tuple[str, str]:
        services = visit.court
        return HealthGate(services.home).level(services.clock())

    return await visit.shared.read("health", read)
