"""What is taken while a contestant works: the time, or (on PostgreSQL) what the server counts."""

from __future__ import annotations

from time import perf_counter
from types import TracebackType
from typing import Protocol, Self

from bench.harness import Figures


class Watch(Protocol):
    """Used around the work alone: ``async with watch: …``, then ``watch.figures(events)``."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def figures(self, events: int) -> Figures:
        """What ``events`` events cost."""
        ...


class Clock:
    """Takes the time; the figure is events per second."""

    def __init__(self) -> None:
        self._seconds = 0.0

    async def __aenter__(self) -> Self:
        self._seconds = -perf_counter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds += perf_counter()

    def figures(self, events: int) -> Figures:
        return {"rate": events / self._seconds}
