"""Run a coroutine that Ctrl-C ends without noise."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType

T = TypeVar("T")


class InterruptHandler:
    """The handler of SIGINT that :func:`run` installs: the first signal cancels, a second one interrupts at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self._loop = loop
        self._task = task
        self.received = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        if self.received > 1 or self._task.done():
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._task.cancel)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Do what :func:`asyncio.run` does, but cancel on Ctrl-C from the event loop.

    The handler of ``asyncio.run`` cancels wherever the program is. In a callback that is about to set the result of
    what is then cancelled, asyncio prints a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(main)
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return asyncio.run(main)  # the application has a handler of its own
    installed: list[InterruptHandler] = []

    async def interruptible() -> T:
        task = asyncio.current_task()
        assert task is not None
        installed.append(handler := InterruptHandler(asyncio.get_running_loop(), task))
        signal.signal(signal.SIGINT, handler)
        try:
            return await main
        finally:
            if signal.getsignal(signal.SIGINT) is handler:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if any(handler.received for handler in installed):
            raise KeyboardInterrupt from None
        raise
