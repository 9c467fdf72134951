"""The operations of bus. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from kingdom.client.connection import Connection
from kingdom.client.connection import path_segment as _part
from kingdom.client.models.bus import DeadLetterState, EventState, Requeue, Requeued, Sample, StreamState
from kingdom.client.models.shared import Page


class BusOperations(Connection):
    """The operations of bus."""

    def list_streams(self, bus: str) -> Page[StreamState]:
        """How full the streams of a bus are."""
        answer: Page[StreamState] = self.request("GET", f"/api/bus/{_part(bus)}/streams")
        return answer

    def get_throughput(self, bus: str, stream: str) -> Page[Sample]:
        """A stream over the last half hour, for a chart."""
        answer: Page[Sample] = self.request("GET", f"/api/bus/{_part(bus)}/streams/{_part(stream)}/throughput")
        return answer

    def list_dead_letters(
        self,
        bus: str,
        stream: str,
        *,
        type_: str | None = None,
        code: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeadLetterState]:
        """What failed for good, the latest first."""
        answer: Page[DeadLetterState] = self.request(
            "GET",
            f"/api/bus/{_part(bus)}/streams/{_part(stream)}/dead",
            query={"type": type_, "code": code, "limit": limit, "cursor": cursor},
        )
        return answer

    def requeue_dead_letters(self, bus: str, stream: str, body: Requeue) -> Requeued:
        """Give dead letters a chance."""
        answer: Requeued = self.request(
            "POST", f"/api/bus/{_part(bus)}/streams/{_part(stream)}/dead/requeue", body=body
        )
        return answer

    def get_bus_event(self, bus: str, event_id: str) -> EventState:
        """Everything a bus knows of one event."""
        answer: EventState = self.request("GET", f"/api/bus/{_part(bus)}/events/{_part(event_id)}")
        return answer
