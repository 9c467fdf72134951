"""The operations of health. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from kingdom.client.connection import Connection
from kingdom.client.models.health import Alive, Health, Ready, Session


class HealthOperations(Connection):
    """The operations of health."""

    def check_alive(self) -> Alive:
        """Is the server alive?."""
        answer: Alive = self.request("GET", "/healthz")
        return answer

    def check_ready(self) -> Ready:
        """Can the server work?."""
        answer: Ready = self.request("GET", "/readyz")
        return answer

    def read_metrics(self) -> str:
        """Metrics for Prometheus."""
        answer: str = self.request("GET", "/metrics")
        return answer

    def read_session(self) -> Session:
        """Who am I here?."""
        answer: Session = self.request("GET", "/api/session")
        return answer

    def read_health(self) -> Health:
        """How is the court?."""
        answer: Health = self.request("GET", "/api/health")
        return answer
