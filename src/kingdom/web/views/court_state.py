"""State that the views of a court keep between requests: indexes, ledger, bus samples."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kingdom.agents.ledger import Ledger
from kingdom.base.garbage import exclude_loaded
from kingdom.court.bootstrap import configured_engines
from kingdom.court.config import load_system
from kingdom.court.discards import DiscardedEvents
from kingdom.court.document_index import DocumentIndex
from kingdom.court.king.admission import HealthGate
from kingdom.court.overview import OverviewReaders
from kingdom.court.questions import QuestionIndex
from kingdom.court.queues import EVENTS, STREAMS, TASKS
from kingdom.court.sentinel.webhooks import WebhookReceiver
from kingdom.court.soldiers import SoldierIndex, TranscriptTails
from kingdom.web.envelope import ApiModel
from kingdom.web.views.task_links import TaskLinkIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.bus import Depth, EventBus
    from kingdom.court.loop import Services
    from kingdom.web.context import WebContext
    from kingdom.web.live.event import LiveEvent
    from kingdom.web.live.hub import Hub


SAMPLE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 5.0  # for the last sample to finish
_KEPT_SAMPLES: Final = 360  # half an hour
_WORKFLOW_BUS: Final = "workflow"
# Journal events that mark arrivals in and departures from the court's queues.
_ARRIVAL_TYPES: Final = {"event.detected": "events", "task.created": "tasks"}
_FINISH_TYPES: Final = {
    "event.dispatched": "events",
    "event.discarded": "events",
    "task.completed": "tasks",
    "task.failed": "tasks",
    "task.cancelled": "tasks",
    "task.needs_human": "tasks",
    "message.sent": "messages",
}
log = logging.getLogger("kingdom.web")
StreamKey = tuple[str, str]  # the names of a bus and a stream


class StreamSample(ApiModel):
    """Depth of a stream at a time, and the events since the previous sample."""

    at: datetime
    seconds: float
    """Seconds since the previous sample."""
    pending: int
    processing: int
    dead: int
    arrived: int
    finished: int


class BusSampler:
    """Samples the depth of the buses every few seconds, and counts arrivals and departures from live events."""

    def __init__(
        self, buses: Mapping[str, EventBus], clock: Callable[[], float], every: float = SAMPLE_SECONDS
    ) -> None:
        self._buses = buses
        self._clock = clock
        self._every = every
        self._rings: dict[StreamKey, deque[StreamSample]] = {}
        self._arrived: Counter[StreamKey] = Counter()
        self._finished: Counter[StreamKey] = Counter()
        self._at = clock()

    @contextlib.asynccontextmanager
    async def sampling(self, hub: Hub) -> AsyncIterator[None]:
        """Sample for the length of the block."""
        undo = hub.listen(self.hear)
        stopping = asyncio.Event()
        keeper = asyncio.create_task(self._keep_sampling(stopping), name="web-bus-sampler")
        try:
            yield
        finally:
            undo()
            stopping.set()
            await asyncio.wait([keeper], timeout=_STOP_SECONDS)  # an unavailable store may take long
            keeper.cancel()

    def samples(self, bus: str, stream: str) -> list[StreamSample]:
        """Return the samples of a stream, oldest first."""
        return list(self._rings.get((bus, stream), ()))

    def per_minute(self, bus: str, stream: str, seconds: float = 60.0) -> tuple[float, float]:
        """Return recent arrivals and departures per minute."""
        span = arrived = finished = 0.0
        for sample in reversed(self._rings.get((bus, stream), ())):
            if span >= seconds:
                break
            span += sample.seconds
            arrived += sample.arrived
            finished += sample.finished
        return (arrived * 60 / span, finished * 60 / span) if span else (0.0, 0.0)

    def hear(self, events: Sequence[LiveEvent]) -> None:
        """Count arrivals and departures."""
        for event in events:
            if event.workflow_id is not None:
                self._arrived[_WORKFLOW_BUS, _WORKFLOW_BUS] += 1
            elif event.type in _ARRIVAL_TYPES:
                self._arrived["court", _ARRIVAL_TYPES[event.type]] += 1
            elif event.type in _FINISH_TYPES:
                self._finished["court", _FINISH_TYPES[event.type]] += 1

    async def sample(self) -> None:
        """Take a sample."""
        now = self._clock()
        seconds, self._at = max(now - self._at, 0.001), now
        for name, bus in self._buses.items():
            for stream, depth in (await bus.depth()).items():
                self._note((name, stream), depth, now, seconds)

    def _note(self, key: StreamKey, depth: Depth, now: float, seconds: float) -> None:
        ring = self._rings.setdefault(key, deque(maxlen=_KEPT_SAMPLES))
        arrived, finished = self._arrived.pop(key, 0), self._finished.pop(key, 0)
        if ring:  # some streams report only one side: derive the other from the change of the depth
            grown = depth.pending + depth.processing - ring[-1].pending - ring[-1].processing
            if key[1] == "messages":
                arrived = max(finished + grown, 0)
            elif key[0] == _WORKFLOW_BUS:
                finished = max(arrived - grown, 0)
        ring.append(
            StreamSample(
                at=datetime.fromtimestamp(now, UTC),
                seconds=round(seconds, 3),
                pending=depth.pending,
                processing=depth.processing,
                dead=depth.dead,
                arrived=arrived,
                finished=finished,
            )
        )

    async def _keep_sampling(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                await self.sample()
            except Exception as error:  # noqa: BLE001 - errors of the disk or database may be temporary
                log.warning("cannot sample the buses, retrying: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await stopping.wait()


class CourtViewState:
    """State that the views of a court keep between requests."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.indexes = {stream: DocumentIndex(services, stream) for stream in STREAMS}
        self.questions = QuestionIndex(services, self.indexes[TASKS], self.indexes[EVENTS])
        self.task_links = TaskLinkIndex()
        self.discarded = DiscardedEvents(services.home.journal)
        self.roster = SoldierIndex(services.home)
        self.readers = OverviewReaders(services.home, self.roster)
        self._ledger = Ledger(services.home.ledger)
        self._reading = threading.Lock()
        self.health = HealthGate(services.home)
        self.last_words = TranscriptTails(services.home, self.engines)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Return the ledger, for one thread at a time: it keeps its read position."""
        with self._reading:
            yield self._ledger

    @cached_property
    def engines(self) -> Mapping[str, Engine | InProcessEngine]:
        """The engines, used to read transcripts."""
        return configured_engines(load_system(self.services.home))

    @cached_property
    def reception(self) -> WebhookReceiver:
        """The receiver of webhooks."""
        return WebhookReceiver(self.services)

    async def warm_up(self) -> None:
        """Fill the indexes before the first request."""
        for index in self.indexes.values():
            await index.newest()
        await asyncio.to_thread(self.discarded.read)
        await asyncio.to_thread(self.roster.at_work)
        await asyncio.to_thread(self.roster.of_task, "")
        exclude_loaded()


def court_state(context: WebContext) -> CourtViewState:
    """Return the state of the court's views. Raises :class:`kingdom.web.envelope.ApiError` if there is no court."""
    services = context.court
    return context.cached(CourtViewState, lambda: CourtViewState(services))


def sampler_of(context: WebContext) -> BusSampler:
    """Return the sampler of the buses."""
    return context.cached(BusSampler, lambda: BusSampler(context.buses(), context.clock))


@contextlib.asynccontextmanager
async def updated_views(context: WebContext) -> AsyncIterator[None]:
    """Sample the buses and warm up the indexes for the length of the block."""
    async with sampler_of(context).sampling(context.live):
        warming = None
        if context.services is not None:
            warming = asyncio.create_task(court_state(context).warm_up(), name="web-court-index")
        try:
            yield
        finally:
            if warming is not None:
                warming.cancel()
                await asyncio.gather(warming, return_exceptions=True)
