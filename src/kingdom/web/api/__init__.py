"""REST under ``/api``: one endpoint for each use case."""

from __future__ import annotations

from kingdom.web.api import court, health, work

ROUTERS = (health.router, *work.ROUTERS, *court.ROUTERS)
