"""Keeps leases alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kingdom.bus.errors import StorageFull, TransportUnavailable
from kingdom.bus.worker._loop import log

if TYPE_CHECKING:
    from kingdom.bus.eventbus import EventBus
    from kingdom.bus.observe import Stats
    from kingdom.bus.worker._held import Held


class Renewer:
    """Renews every lease held, three times per lease, until the worker has let go of all of them."""

    def __init__(self, bus: EventBus, held: Held, lease: float, stats: Stats) -> None:
        self._bus = bus
        self._held = held
        self._lease = lease
        self._stats = stats

    async def run(self) -> None:
        """Renew until cancelled. It goes on while the worker drains: handlers that finish late keep their lease."""
        while True:
            await asyncio.sleep(self._lease / 3)
            leased = list(self._held.leased)
            if not leased:
                continue
            try:
                lost = await self._bus.extend(leased, self._lease)
            except (TransportUnavailable, StorageFull) as error:
                log.warning("leases could not be renewed: %s", error)
                continue
            # What was settled while the renewal was under way is not lost, merely no longer ours to renew.
            lost = [delivery for delivery in lost if delivery in self._held.leased]
            if lost:
                self._held.forget(lost)
                self._stats.lease_lost(len(lost))
                for delivery in lost:
                    log.warning("lease lost while the event was held", extra=delivery.log_fields())
