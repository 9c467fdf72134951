"""Pages about workflows and templates."""

from __future__ import annotations

from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit


@page("/workflows", title="nav.workflows", nav="workflows")
async def workflows(visit: Visit) -> None:
    """The list of workflows."""
    head(visit.words("nav.workflows"))


@page("/templates", title="nav.templates", nav="templates")
async def templates(visit: Visit) -> None:
    """The list of templates."""
    head(visit.words("nav.templates"))
