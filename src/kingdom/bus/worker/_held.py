"""The deliveries a worker holds, and the queue between claiming and handling them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kingdom.bus.delivery import Delivery


class Held:
    """Waiting (claimed, not started), running, and everything not settled yet (whose lease must be renewed)."""

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self.running: set[Delivery] = set()
        self.leased: set[Delivery] = set()
        self._takers: deque[asyncio.Future[None]] = deque()

    @property
    def unfinished(self) -> int:
        """How many deliveries wait or run."""
        return len(self.waiting) + len(self.running)

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Queue what was just claimed."""
        before = len(self.waiting)
        self.waiting.extend(deliveries)
        new = list(self.waiting)[before:] if before else list(self.waiting)
        self.leased.update(new)
        for _ in new:
            if not self._wake_one():
                break

    def next(self) -> Delivery | None:
        """The next delivery to run, if one waits."""
        if not self.waiting:
            return None
        delivery = self.waiting.popleft()
        self.running.add(delivery)
        return delivery

    async def take(self) -> Delivery:
        """The next delivery to run; waits for one."""
        while (delivery := self.next()) is None:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and self.waiting:
                    self._wake_one()  # hand the wake-up on: it was meant for whoever can take
                raise
        return delivery

    def drop_waiting(self) -> list[Delivery]:
        """Take back everything that was not started."""
        dropped = list(self.waiting)
        self.waiting.clear()
        self.leased.difference_update(dropped)
        return dropped

    def forget(self, lost: Iterable[Delivery]) -> None:
        """Stop renewing leases that are somebody else's now, and do not start what has not been started."""
        gone = set(lost)
        self.leased -= gone
        if any(delivery in gone for delivery in self.waiting):
            kept = [delivery for delivery in self.waiting if delivery not in gone]
            self.waiting.clear()
            self.waiting.extend(kept)

    def _wake_one(self) -> bool:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return True
        return False
