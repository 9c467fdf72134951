"""Work that is cheaper together: what is asked for while a batch is under way is done with the next one.

A disk makes a hundred files durable in hardly more time than one. Whoever waits for one file at a time does not get
that; many who wait at the same time do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Batcher(Generic[T]):
    """Does pieces of work in batches, one batch at a time, in a thread. Belongs to one event loop.

    ``work`` gets the pieces in the order they were asked for. When it raises for several, each of them is tried alone,
    so that everybody gets the error that is their own; it must bear being repeated.
    """

    def __init__(self, work: Callable[[Sequence[T]], None]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def do(self, piece: T) -> None:
        """Return when the piece is done. Raises what ``work`` raised for it.

        Who gives up waiting does not take the piece back.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((piece, done))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work_off())
        await done

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                errors = await asyncio.to_thread(self._try, [piece for piece, _ in batch])
                for (_, done), error in zip(batch, errors, strict=True):
                    if done.done():
                        continue  # nobody waits any more
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        finally:
            self._worker = None
            for _, done in self._waiting:  # the event loop ends
                done.cancel()

    def _try(self, pieces: list[T]) -> list[Exception | None]:
        try:
            self._work(pieces)
        except Exception as error:  # noqa: BLE001 - it is for whoever asked
            if len(pieces) == 1:
                return [error]
            return [self._try([piece])[0] for piece in pieces]
        return [None] * len(pieces)
