"""Combine concurrent calls into batches, for work that costs little more for many items than for one.

A disk syncs a hundred files in hardly more time than one. Calls that wait at the same time share that cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Batcher(Generic[T]):
    """Processes items in batches, one batch at a time, in a thread. Belongs to one event loop.

    ``work`` gets the items in the order of the calls. If it raises for a batch, it is called again with each item
    alone, so that each caller gets its own error. So it must be safe to repeat.
    """

    def __init__(self, work: Callable[[Sequence[T]], None]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def do(self, item: T) -> None:
        """Process an item with the next batch, and wait for it. Raises what ``work`` raised for it.

        A caller that is cancelled does not withdraw the item.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run_batches())
        await done

    async def _run_batches(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                errors = await asyncio.to_thread(self._try, [item for item, _ in batch])
                for (_, done), error in zip(batch, errors, strict=True):
                    if done.done():
                        continue  # the caller was cancelled
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        finally:
            self._worker = None
            for _, done in self._waiting:  # the event loop is closing
                done.cancel()

    def _try(self, items: list[T]) -> list[Exception | None]:
        try:
            self._work(items)
        except Exception as error:  # noqa: BLE001 - raised in the caller
            if len(items) == 1:
                return [error]
            return [self._try([item])[0] for item in items]
        return [None] * len(items)
