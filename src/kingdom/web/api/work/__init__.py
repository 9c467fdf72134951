"""Workflows, and what they are made of: repositories, MCP servers, templates, checkpoints, reports."""

from __future__ import annotations

from fastapi import APIRouter

from kingdom.web.api.work import gits, lifecycle, looking, mcp_servers, modifying, templates, workflows

ROUTERS: tuple[APIRouter, ...] = (
    gits.router,
    mcp_servers.router,
    templates.router,
    workflows.router,
    lifecycle.router,
    modifying.router,
    looking.router,
)
