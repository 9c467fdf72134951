"""REST under ``/api``: one endpoint for each use case."""

from __future__ import annotations

from kingdom.web.api import court, work

ROUTERS = (*work.ROUTERS, *court.ROUTERS)
