"""SIGTERM and SIGINT drain every worker of the event loop, however many there are."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signal(callback: Callable[[], None]) -> Callable[[], None]:
    """Have ``callback`` called on SIGTERM and SIGINT; returns the undo.

    Only in the main thread, and only where nobody installed a handler of their own: then the application decides,
    and calls ``worker.stop()`` itself. The first signal drains; a second one does what it always does.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    listeners = _listeners.setdefault(loop, [])
    if not listeners:
        for number in _SIGNALS:
            if _is_nobodys(signal.getsignal(number)):
                with contextlib.suppress(NotImplementedError):  # event loops without signal support
                    loop.add_signal_handler(number, _tell, loop, listeners)
    listeners.append(callback)

    def undo() -> None:
        listeners.remove(callback)
        if not listeners:
            _uninstall(loop)

    return undo


def _tell(loop: asyncio.AbstractEventLoop, listeners: list[Callable[[], None]]) -> None:
    _uninstall(loop)
    for listener in list(listeners):
        listener()


def _uninstall(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        loop.remove_signal_handler(number)


def _is_nobodys(handler: object) -> bool:
    """Whether a signal has its default handler, or the one asyncio.run() puts on SIGINT."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    return getattr(getattr(handler, "func", None), "__qualname__", "") == "Runner._on_sigint"
