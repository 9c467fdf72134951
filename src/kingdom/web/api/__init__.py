"""REST under ``/api``: one endpoint for each use case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.web.api import (
    court_queues,
    court_status,
    event_types,
    generals,
    health,
    inbox,
    plan_changes,
    search,
    sessions,
    settings,
    sources,
    templates,
    tokens,
    webhooks,
    workflow_results,
    workflows,
)

if TYPE_CHECKING:
    from fastapi import APIRouter

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    inbox.router,
    search.router,
    sources.gits_router,
    sources.mcp_servers_router,
    templates.router,
    workflows.router,
    workflow_results.router,
    plan_changes.router,
    court_status.court_router,
    court_queues.events_router,
    court_queues.tasks_router,
    court_queues.messages_router,
    court_queues.questions_router,
    generals.router,
    event_types.router,
    settings.router,
    tokens.router,
    sessions.router,
    court_status.figures_router,
    court_status.bus_router,
    webhooks.router,
)
