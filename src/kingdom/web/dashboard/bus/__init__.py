"""Pages about the bus."""

from __future__ import annotations

from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit


@page("/bus", title="nav.bus", nav="bus", court=True)
async def show(visit: Visit) -> None:
    """The page."""
    head(visit.words("nav.bus"))
