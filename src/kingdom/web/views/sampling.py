"""How full the streams were over the last half hour, and how much came and went: for charts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kingdom.bus import BusError
from kingdom.web.envelope import ApiModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.bus import Depth, EventBus
    from kingdom.web.live.hub import Hub, LiveEvent

EVERY: Final = 5.0  # seconds
_PATIENCE: Final = 5.0  # seconds for the last look to end
_KEPT: Final = 360  # half an hour
_WORKFLOW: Final = "workflow"
# What the journal tells of the queues of a court: what came in, and what left the line.
_ARRIVED: Final = {"event.detected": "events", "task.created": "tasks"}
_FINISHED: Final = {
    "event.dispatched": "events",
    "event.discarded": "events",
    "task.completed": "tasks",
    "task.failed": "tasks",
    "task.needs_human": "tasks",
    "message.sent": "messages",
}
log = logging.getLogger("kingdom.web")
Key = tuple[str, str]  # the names of a bus and a stream


class Sample(ApiModel):
    """How a stream was at a moment, and what happened since the sample before."""

    at: datetime
    seconds: float
    """Since the sample before."""
    pending: int
    processing: int
    dead: int
    arrived: int
    finished: int


class Sampler:
    """Looks at the buses every few seconds, and hears from the hub what came and went meanwhile."""

    def __init__(self, buses: Mapping[str, EventBus], clock: Callable[[], float], every: float = EVERY) -> None:
        self._buses = buses
        self._clock = clock
        self._every = every
        self._rings: dict[Key, deque[Sample]] = {}
        self._arrived: Counter[Key] = Counter()
        self._finished: Counter[Key] = Counter()
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
            await asyncio.wait([keeper], timeout=_PATIENCE)  # a store that is away may take its time
            keeper.cancel()

    def samples(self, bus: str, stream: str) -> list[Sample]:
        """The last ones of a stream, the oldest first."""
        return list(self._rings.get((bus, stream), ()))

    def per_minute(self, bus: str, stream: str, seconds: float = 60.0) -> tuple[float, float]:
        """How much came in and how much was finished in a minute, lately."""
        span = arrived = finished = 0.0
        for sample in reversed(self._rings.get((bus, stream), ())):
            if span >= seconds:
                break
            span += sample.seconds
            arrived += sample.arrived
            finished += sample.finished
        return (arrived * 60 / span, finished * 60 / span) if span else (0.0, 0.0)

    def hear(self, events: Sequence[LiveEvent]) -> None:
        """Count what happened."""
        for event in events:
            if event.workflow_id is not None:
                self._arrived[_WORKFLOW, _WORKFLOW] += 1
            elif event.type in _ARRIVED:
                self._arrived["court", _ARRIVED[event.type]] += 1
            elif event.type in _FINISHED:
                self._finished["court", _FINISHED[event.type]] += 1

    async def sample(self) -> None:
        """Look now."""
        now = self._clock()
        seconds, self._at = max(now - self._at, 0.001), now
        for name, bus in self._buses.items():
            for stream, depth in (await bus.depth()).items():
                self._note((name, stream), depth, now, seconds)

    def _note(self, key: Key, depth: Depth, now: float, seconds: float) -> None:
        ring = self._rings.setdefault(key, deque(maxlen=_KEPT))
        arrived, finished = self._arrived.pop(key, 0), self._finished.pop(key, 0)
        if ring:  # of some streams only one side is told of: the other follows from how the depth changed
            grown = depth.pending + depth.processing - ring[-1].pending - ring[-1].processing
            if key[1] == "messages":
                arrived = max(finished + grown, 0)
            elif key[0] == _WORKFLOW:
                finished = max(arrived - grown, 0)
        ring.append(
            Sample(
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
            except BusError as error:
                log.warning("the depth of the buses cannot be looked at, trying again: %s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), self._every)
