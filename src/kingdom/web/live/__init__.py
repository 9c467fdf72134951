"""Live events: a durable feed of what happens, numbered without a gap, over WebSocket and SSE."""

from __future__ import annotations

from fastapi import APIRouter

ROUTERS: tuple[APIRouter, ...] = ()
