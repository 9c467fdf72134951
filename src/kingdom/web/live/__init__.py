"""Live events: a durable feed of what happens, numbered without a gap, over WebSocket and SSE."""

from __future__ import annotations

from kingdom.web.live import sse, websocket

ROUTERS = (sse.router, websocket.router)
