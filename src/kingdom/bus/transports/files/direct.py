"""Publishing in the thread of a caller that has no event loop."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from kingdom.bus.errors import BusError
from kingdom.bus.transports.files.faults import bus_error
from kingdom.bus.transports.files.paths import MARKER, check_version
from kingdom.bus.transports.files.publishing import publish_now

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.bus.envelope import Envelope
    from kingdom.bus.transports.files.stream import FileStream
    from kingdom.bus.transports.files.syncing import Syncer


class Direct:
    """Streams whose files stay open between calls; threads publish at the same time."""

    def __init__(self, root: str, make: Callable[[str], FileStream], syncer: Syncer) -> None:
        self._root = root
        self._make = make
        self._syncer = syncer
        self._lock = threading.Lock()
        self._streams: dict[str, FileStream] = {}
        self._marker: tuple[int, int, int] | None = None  # of the bus whose streams these are

    def publish(self, name: str, envelopes: Sequence[Envelope]) -> list[str]:
        """Publish, durable on return."""
        try:
            return publish_now(self._stream(name), self._syncer, envelopes)
        except BusError:  # some of them are OSErrors, too
            raise
        except OSError as error:
            raise bus_error(error, self._root) from error

    def close(self) -> None:
        """Let go of all files. Safe to call twice."""
        with self._lock:
            self._let_go()
            self._syncer.close()

    def _stream(self, name: str) -> FileStream:
        with self._lock:
            self._look_at_the_marker()
            stream = self._streams.get(name)
            if stream is None:
                stream = self._streams[name] = self._make(name)
            return stream

    def _look_at_the_marker(self) -> None:
        """Look at the bus anew when another one lies there than before, or none.

        Directories that are missing would be made, and nobody looks into those without a bus.
        """
        marker = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(f"{self._root}/{MARKER}")
            marker = found.st_dev, found.st_ino, found.st_mtime_ns
        if marker is None or marker != self._marker:
            self._let_go()
            self._marker = None
            check_version(self._root)
            self._marker = marker

    def _let_go(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
