"""REST under `/api`: one endpoint for each use case."""

from __future__ import annotations

from fastapi import APIRouter

from kingdom.web.api import court_queues, court_status, health, plan_changes, sources, templates, webhooks, workflows

# The court: events, tasks, messages, questions, generals, figures, the bus, and where webhooks arrive.


COURT_ROUTERS: tuple[APIRouter, ...] = (
    court_status.court_router,
    court_queues.events_router,
    court_queues.tasks_router,
    court_queues.messages_router,
    court_queues.questions_router,
    court_status.generals_router,
    court_status.figures_router,
    court_status.bus_router,
    webhooks.router,
)


# Workflows, and what they are made of: repositories, MCP servers, templates, checkpoints, reports.


WORKFLOW_ROUTERS: tuple[APIRouter, ...] = (
    sources.gits_router,
    sources.mcp_servers_router,
    templates.router,
    workflows.router,
    workflows.router,
    plan_changes.router,
    workflows.router,
)


# REST under ``/api``: one endpoint for each use case.


ROUTERS = (health.router, *WORKFLOW_ROUTERS, *COURT_ROUTERS)
