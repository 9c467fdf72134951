"""The drop folder as a source: each JSON file put into it becomes an event, and is removed.

Write the file elsewhere, or under a name that begins with a dot, and rename it when it is complete. A file that is not
valid after two seconds is moved to ``invalid/`` below the folder, with the reason beside it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import write_atomic
from kingdom.court.errors import InvalidDocument
from kingdom.court.models import Event, timestamp
from kingdom.court.queues import MAX_DOCUMENT_BYTES, parse_document
from kingdom.court.sentinel.events import make_event_id
from kingdom.court.sentinel.watcher import FetchedBatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.sentinel.config import LocalSection

_BATCH_SIZE: Final = 100
_WRITE_GRACE_SECONDS: Final = 2.0  # an invalid file may still be being written
log = logging.getLogger("kingdom.court.sentinel")


def drop_folder(home: Home, section: LocalSection) -> Path:
    return home.root / section.folder


@dataclass(frozen=True, slots=True)
class DroppedFile:
    path: Path
    changed_ns: int
    content: bytes


class DropFolderWatcher:
    """Watches the drop folder. It needs no cursor: files that were handled are gone."""

    name = "local"

    def __init__(self, services: Services, section: LocalSection) -> None:
        self._clock = services.clock
        self._folder = drop_folder(services.home, section)
        self._interval = section.interval_seconds
        self._unfinished: dict[Path, float] = {}  # when a file was first found invalid or unreadable

    @property
    def interval(self) -> float:
        """The configured interval, or less while a file may still be being written."""
        return min(self._interval, _WRITE_GRACE_SECONDS) if self._unfinished else self._interval

    async def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[FetchedBatch]:
        """Read the files, oldest first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = sorted(self._files(), key=lambda file: (file.changed_ns, file.path.name))
        for start in range(0, len(found), _BATCH_SIZE):
            yield FetchedBatch(list(found[start : start + _BATCH_SIZE]), cursor)

    def parse(self, batch: FetchedBatch) -> list[Event]:
        """Turn the files into events, and add those that can be removed to ``batch.done``."""
        events = []
        for dropped in batch.items:
            try:
                events.append(self._event(dropped))
            except (ValueError, InvalidDocument) as error:
                if self._finished_writing(dropped):
                    self._put_aside(dropped.path, str(error))
                continue
            self._unfinished.pop(dropped.path, None)
            batch.done.append(dropped)
        return events

    async def post_emit(self, batch: FetchedBatch) -> None:
        """Remove the files, except those that were replaced meanwhile."""
        for dropped in batch.done:
            with contextlib.suppress(FileNotFoundError):
                if dropped.path.stat().st_mtime_ns == dropped.changed_ns:
                    dropped.path.unlink()

    def urgent(self) -> bool:
        """Return whether there is a file that is not known to be incomplete."""
        with contextlib.suppress(OSError):
            return any(path not in self._unfinished for path in self._names())
        return False

    def problems(self) -> Mapping[str, str]:
        """Return nothing: a file that cannot be read is set aside with its reason."""
        return {}

    async def close(self) -> None:
        """Do nothing: no resource is open."""

    def _names(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if path.suffix == ".json" and not path.name.startswith(".")]

    def _files(self) -> list[DroppedFile]:
        found = []
        for path in self._names():
            try:
                status = path.stat()
                if status.st_size > MAX_DOCUMENT_BYTES:
                    self._put_aside(path, f"larger than {MAX_DOCUMENT_BYTES:,} bytes")
                    continue
                found.append(DroppedFile(path, status.st_mtime_ns, path.read_bytes()))
            except OSError as error:
                if path not in self._unfinished:
                    log.warning("local: %s cannot be read: %s", path, error.strerror or error)
                self._unfinished.setdefault(path, self._clock())
        return found

    def _event(self, dropped: DroppedFile) -> Event:
        """Make the event. Its default id is the file's name and time: a new file of that name is a new event."""
        document = json.loads(dropped.content)
        if not isinstance(document, dict):
            raise InvalidDocument("the file must contain a JSON object with a type and a payload")
        defaults = {
            "id": make_event_id(self.name, dropped.path.stem[:100], dropped.changed_ns),
            "source": self.name,
            "created_at": timestamp(dropped.changed_ns / 1e9),
        }
        return parse_document(Event, {**defaults, **document, "status": "pending"}, dropped.path.name)

    def _finished_writing(self, dropped: DroppedFile) -> bool:
        since = self._unfinished.setdefault(dropped.path, self._clock())
        return self._clock() - since >= _WRITE_GRACE_SECONDS

    def _put_aside(self, path: Path, reason: str) -> None:
        log.error("local: %s is not a valid event: %s", path.name, reason)
        self._unfinished.pop(path, None)
        aside = self._folder / "invalid"
        aside.mkdir(exist_ok=True)
        write_atomic(aside / f"{path.name}.reason", reason + "\n")
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside / path.name)
