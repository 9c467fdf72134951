"""Watch files for changes (Linux inotify, through ctypes).

On other systems, and when the kernel's limits are exhausted, :class:`FileWatcher` does nothing and ``available`` is
False. Callers poll as well, so a missing watch costs only latency.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import struct
import sys
from collections.abc import Callable, Iterator
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio

MODIFY: Final = 0x002  # a file was written to
ATTRIB: Final = 0x004  # its metadata changed
CLOSE_WRITE: Final = 0x008  # a file that was open for writing was closed
MOVED_FROM: Final = 0x040
MOVED_TO: Final = 0x080
CREATE: Final = 0x100
DELETE: Final = 0x200
DELETE_SELF: Final = 0x400  # the watched file was deleted
MOVE_SELF: Final = 0x800  # the watched file was renamed
OVERFLOW: Final = 0x4000  # the kernel's queue overflowed and changes were lost: look at the files
IGNORED: Final = 0x8000  # the watch has ended: the watched file is gone

SWITCH: Final = "KINGDOM_INOTIFY"  # an environment variable; "off" disables inotify

_MASK_ADD: Final = 0x20000000
_HEADER: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_READ_BYTES: Final = 64 * 1024

log = logging.getLogger("kingdom.base.inotify")


class FileChange(NamedTuple):
    """A change: the bits of ``mask``, and the name in a watched directory (empty for a watched file)."""

    mask: int
    name: str


Callback = Callable[[list[FileChange]], None]


class FileWatcher:
    """Watches files and directories from an event loop. To be used only in the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: dict[int, list[tuple[int, Callback]]] = {}  # by watch descriptor
        self._fd = _open_instance()
        if self._fd is not None:
            loop.add_reader(self._fd, self._read)

    @property
    def available(self) -> bool:
        """Whether changes are reported; if not, poll."""
        return self._fd is not None

    def add(self, path: str | os.PathLike[str], mask: int, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with the changes of ``path`` that match ``mask``, several at once where possible.

        ``OVERFLOW`` is reported to every callback, and ``IGNORED`` when ``path`` is gone, whatever the mask. Returns a
        function that ends the watch. Raises ``OSError`` when the path cannot be watched. When the kernel's limit of
        watches is exhausted, it does nothing.
        """
        if self._fd is None:
            return _nothing
        watch = int(_libc().inotify_add_watch(self._fd, os.fsencode(path), mask | _MASK_ADD))
        if watch < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOSPC, errno.ENOMEM):
                log.warning("no inotify watch left for %s (fs.inotify.max_user_watches); polling instead", path)
                return _nothing
            raise OSError(code, os.strerror(code), os.fspath(path))
        listener = (mask, callback)
        self._listeners.setdefault(watch, []).append(listener)

        def undo() -> None:
            listeners = self._listeners.get(watch, [])
            # By identity: the descriptor may have been reused, and there may be two equal listeners.
            kept = [item for item in listeners if item is not listener]
            if len(kept) == len(listeners):
                return
            if kept:
                self._listeners[watch] = kept
            else:
                del self._listeners[watch]
                if self._fd is not None:
                    _libc().inotify_rm_watch(self._fd, watch)

        return undo

    def close(self) -> None:
        """Stop watching. Safe to call twice."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                self._loop.remove_reader(fd)
            # In a thread: the kernel lets it wait for all other processors, 10 to 20 ms, and the loop with it.
            Thread(target=os.close, args=(fd,), name="close-inotify", daemon=True).start()
        self._listeners.clear()

    def _read(self) -> None:
        if self._fd is None:
            return
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        batches: dict[int, list[FileChange]] = {}
        for watch, change in _parse(data):
            for target in list(self._listeners) if change.mask & OVERFLOW else (watch,):
                batches.setdefault(target, []).append(change)
        for watch, changes in batches.items():
            self._dispatch(watch, changes)

    def _dispatch(self, watch: int, changes: list[FileChange]) -> None:
        listeners = self._listeners.get(watch, [])
        if any(change.mask & IGNORED for change in changes):
            self._listeners.pop(watch, None)  # the kernel may reuse the descriptor
        for mask, callback in list(listeners):
            wanted = [change for change in changes if change.mask & (mask | OVERFLOW | IGNORED)]
            if wanted:
                callback(wanted)


def _parse(data: bytes) -> Iterator[tuple[int, FileChange]]:
    at = 0
    while at < len(data):
        watch, mask, _cookie, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield watch, FileChange(mask, os.fsdecode(data[at : at + length].rstrip(b"\0")))
        at += length


def _open_instance() -> int | None:
    if not sys.platform.startswith("linux") or os.environ.get(SWITCH) == "off":
        return None
    fd = int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if fd >= 0:
        return fd
    log.warning("inotify is not available (%s); polling instead", os.strerror(ctypes.get_errno()))
    return None


_loaded: list[Any] = []


def _libc() -> Any:
    if not _loaded:
        _loaded.append(ctypes.CDLL(None, use_errno=True))
    return _loaded[0]


def _nothing() -> None:
    """End a watch that does not exist."""
