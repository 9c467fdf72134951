"""What the views keep between two looks, so that many who look cost little more than one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from kingdom.agents.ledger import Ledger
from kingdom.court.bootstrap import engines_of
from kingdom.court.config.system import load_system
from kingdom.court.document_index import DocumentIndex
from kingdom.court.documents import STREAMS
from kingdom.court.king.gates import HealthGate
from kingdom.court.sentinel.reception import Reception
from kingdom.court.soldiers import Roster
from kingdom.court.transcripts import LastWords
from kingdom.web.views.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.agents.engine import Engine, Player
    from kingdom.court.loop import Services
    from kingdom.web.context import WebContext


class CourtDesk:
    """For the views of one court."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.indexes = {stream: DocumentIndex(services, stream) for stream in STREAMS}
        self.roster = Roster(services.home)
        self._ledger = Ledger(services.home.ledger)
        self._reading = threading.Lock()
        self.health = HealthGate(services.home)
        self.last_words = LastWords(services.home, self.engines)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, for one thread at a time: it remembers how far it has read."""
        with self._reading:
            yield self._ledger

    @cached_property
    def engines(self) -> Mapping[str, Engine | Player]:
        """For reading transcripts."""
        return engines_of(load_system(self.services.home))

    @cached_property
    def reception(self) -> Reception:
        """Where webhooks arrive."""
        return Reception(self.services)

    async def warm_up(self) -> None:
        """Read what lies there, before anybody asks."""
        for index in self.indexes.values():
            await index.newest()
        await asyncio.to_thread(self.roster.at_work)
        await asyncio.to_thread(self.roster.of_task, "")


def desk_of(context: WebContext) -> CourtDesk:
    """The desk of the court; raises :class:`kingdom.web.envelope.ApiError` where there is none."""
    services = context.court
    return context.keep(CourtDesk, lambda: CourtDesk(services))


def sampler_of(context: WebContext) -> Sampler:
    """Who samples the buses."""
    return context.keep(Sampler, lambda: Sampler(context.buses(), context.clock))


@contextlib.asynccontextmanager
async def keeping(context: WebContext) -> AsyncIterator[None]:
    """Keep everything up to date for the length of the block."""
    async with sampler_of(context).sampling(context.live):
        warming = None
        if context.services is not None:
            warming = asyncio.create_task(desk_of(context).warm_up(), name="web-court-index")
        try:
            yield
        finally:
            if warming is not None:
                warming.cancel()
                await asyncio.gather(warming, return_exceptions=True)
