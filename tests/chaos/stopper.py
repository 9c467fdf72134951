"""Stopping a process at one chosen call from within, where strace is not installed.

What Python itself calls can be counted: the functions of ``os``, the statements of ``sqlite3`` connections, the writes
of network transports. It is coarser than strace, which sees every system call SQLite makes.
"""

from __future__ import annotations

import asyncio.selector_events
import os
import signal
import sqlite3
from collections.abc import Callable
from typing import Any

OS_CALLS = ("open", "write", "writev", "fsync", "fdatasync", "rename", "replace", "link", "unlink", "mkdir", "sync")
CALLS = {
    "files": tuple(f"os.{name}" for name in OS_CALLS),
    "sqlite": ("sqlite3.execute", "sqlite3.executemany", "sqlite3.commit", "os.writev"),
    "postgresql": ("socket.write", "os.writev"),
}


def install(call: str, when: int) -> None:
    """Have this process kill itself just before its call number ``when`` of ``call``."""
    made = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            nonlocal made
            made += 1
            if made == when:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)

        return count

    module, _, name = call.partition(".")
    if module == "os":
        setattr(os, name, counted(getattr(os, name)))
    elif module == "socket":
        transport: Any = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
        transport.write = counted(transport.write)
    else:
        _count_sqlite(name, counted)


def _count_sqlite(name: str, counted: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    class Counting(sqlite3.Connection):
        pass

    setattr(Counting, name, counted(getattr(sqlite3.Connection, name)))
    connect = sqlite3.connect

    def counting(*arguments: Any, **named: Any) -> Any:
        named.setdefault("factory", Counting)
        return connect(*arguments, **named)

    setattr(sqlite3, "connect", counting)  # noqa: B010 - an overloaded function, to mypy
