"""The operations of live. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Any

from kingdom.client.connection import Connection


class LiveOperations(Connection):
    """The operations of live."""

    def get_stream_protocol(self) -> dict[str, Any]:
        """The messages of live connections."""
        answer: dict[str, Any] = self.request("GET", "/api/stream/protocol")
        return answer
