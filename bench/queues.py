"""Looking at the queues of a court that is measured: files, or a database."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.court import count, event
from kingdom.base.files import read_json
from kingdom.bus import EventBus
from kingdom.court.home import Home
from kingdom.court.models import Event
from kingdom.court.queues import EVENTS, MESSAGES, STATES, TASKS, declare_queues, open_queues, put_documents


class Queues:
    """The queues of a home; ``url``: the database they are in, None where they are files."""

    def __init__(self, home: Home, url: str | None) -> None:
        self._home = home
        self._url = url
        self._runner = asyncio.Runner()
        self._bus: EventBus = open_queues(url or home.queue_url)

    def __enter__(self) -> Self:
        self._runner.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._bus.close())
        self._runner.close()

    def fill(self, events: int) -> None:
        """Put so many events in."""
        for first in range(0, events, 1000):
            numbers = range(first, min(first + 1000, events))
            self._runner.run(put_documents(self._bus, [Event.model_validate(event(number)) for number in numbers]))

    def finished(self, events: int) -> bool:
        """Whether all events are completed."""
        if self._url is None:
            return count(self._home, EVENTS, "completed") == events
        depth = self._runner.run(self._bus.depth())[EVENTS]
        return depth.pending + depth.processing == 0

    def first_task(self) -> float:
        """When the first task was made."""
        if self._url is not None:
            first = self._runner.run(self._first_record())
        else:
            folder = self._home.queue / TASKS / "completed"
            first = str(read_json(min(folder.iterdir(), key=_number))["created_at"])
        return datetime.fromisoformat(first).timestamp()

    def last_event(self) -> float:
        """When the last event was completed, by the clock of the database."""
        return self._runner.run(self._last_completed()).timestamp()

    def check(self, events: int) -> None:
        """Everything that should be there is."""
        expected = {(EVENTS, "completed"): events, (TASKS, "completed"): events, (MESSAGES, "pending"): 2 * events}
        if self._url is not None:
            found = self._runner.run(self._records())
        else:
            places = {(stream, state) for stream, states in STATES.items() for state in states.values()}
            found = Counter({place: count(self._home, *place) for place in places})
        assert +found == expected, f"{+found}, and not {expected}"
        results = [path for path in self._home.results.glob("task-*.json") if not path.stem.endswith("-raw")]
        assert len(results) == events, "results are missing"

    async def _open(self) -> None:
        await self._bus.open()
        await declare_queues(self._bus)

    async def _first_record(self) -> str:
        async for record in self._bus.records(TASKS):
            return str(record.envelope.payload["created_at"])
        raise AssertionError("there are no tasks")

    async def _last_completed(self) -> datetime:
        times = [record.finished_at async for record in self._bus.records(EVENTS)]
        return max(time for time in times if time is not None)

    async def _records(self) -> Counter[tuple[str, str]]:
        return Counter(
            [(stream, states[record.status]) for stream, states in STATES.items()
             async for record in self._bus.records(stream)]
        )  # fmt: skip


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
