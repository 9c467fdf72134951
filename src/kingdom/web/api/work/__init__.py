"""Workflows, and what they are made of: repositories, MCP servers, templates, checkpoints, reports."""

from __future__ import annotations

from fastapi import APIRouter

ROUTERS: tuple[APIRouter, ...] = ()
