"""Live events: a durable feed, numbered without gaps, over WebSocket and SSE."""

from __future__ import annotations

from kingdom.web.live import sse, websocket

ROUTERS = (sse.router, websocket.router)
