"""Claims events ahead of the handlers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from kingdom.bus.errors import StorageFull, TransportUnavailable
from kingdom.bus.worker._loop import Outage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kingdom.bus.delivery import Delivery
    from kingdom.bus.worker._held import Held
    from kingdom.bus.worker._pace import Pace

_WARM_UP = 1.0  # seconds a new worker runs one event at a time, unless a handler ends sooner


class Feeder:
    """Keeps the handlers supplied; sleeps until the bus, a due retry or the poll interval wakes it."""

    def __init__(
        self,
        claim: Callable[[int], Awaitable[list[Delivery]]],
        held: Held,
        pace: Pace,
        poll: float,
        blocked: Callable[[], bool],
    ) -> None:
        self._claim = claim
        self._held = held
        self._pace = pace
        self._poll = poll
        self._blocked = blocked
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    def wake(self) -> None:
        """Something may be claimable."""
        self._wake.set()

    def finished(self) -> None:
        """A handler ended: there may be room."""
        self._room.set()

    def flushed(self, due_in: list[float]) -> None:
        """Verdicts were written, among them retries due after so many seconds.

        The store wakes nobody when a retry falls due, so we do: a little late is better than a little early.
        """
        self._room.set()
        for delay in set(due_in):
            asyncio.get_running_loop().call_later(delay + 0.002, self.wake)

    async def run(self) -> None:
        """Claim until cancelled."""
        outage = Outage("claim events")
        warming = asyncio.get_running_loop().call_later(_WARM_UP, self._warmed_up)
        try:
            await self._claim_for_ever(outage)
        finally:
            warming.cancel()

    def _warmed_up(self) -> None:
        self._pace.warmed_up()
        self._room.set()

    async def _claim_for_ever(self, outage: Outage) -> None:
        while True:
            self._room.clear()
            ask = 0 if self._blocked() else self._pace.ask(self._held.unfinished)
            if not ask:
                await self._room.wait()
                continue
            self._wake.clear()  # before the claim: what is published during it must not be missed
            try:
                claimed = await self._claim(ask)
                outage.over()
            except (TransportUnavailable, StorageFull) as error:
                await outage.wait(error)
                continue
            self._held.add(claimed)
            if len(claimed) < ask:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll * random.uniform(0.8, 1.2)):  # noqa: S311
                        await self._wake.wait()
