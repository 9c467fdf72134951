"""A queue directory under test, and the hands that reach into it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kingdom.bus import Envelope

STREAM = "orders"


class QueueFiles:
    """The directory of a ``files:`` bus, seen past the bus."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.url = f"files://{folder}"
        self.home = folder / STREAM

    def __call__(self, state: str, stream: str = STREAM) -> list[str]:
        """The names of the files in a state, without their ending."""
        folder = self.root / stream / state
        return sorted(path.name.removesuffix(".json") for path in folder.iterdir()) if folder.exists() else []

    def path(self, state: str, event_id: str) -> Path:
        return self.home / state / f"{event_id}.json"

    def document(self, state: str, event_id: str) -> dict[str, Any]:
        return json.loads(self.path(state, event_id).read_text())  # type: ignore[no-any-return]

    def temporary(self) -> list[str]:
        return [str(path) for path in self.root.rglob(".tmp-*")]

    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / ".ledger").read_text().splitlines()]

    # ── hands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def drop(self, state: str, event_id: str, text: str | None = None, *, age: float = 0.0) -> Path:
        """Put a file into a state the way ``mv`` does; ``age`` is how many seconds ago it was written."""
        source, target = self.root / f"{event_id}.part", self.path(state, event_id)
        source.write_text(document(event_id) if text is None else text)
        if age:
            os.utime(source, (source.stat().st_mtime - age,) * 2)
        with self.noticeable(state):
            source.rename(target)
        return target

    def move(self, event_id: str, source: str, target: str) -> None:
        with self.noticeable(source), self.noticeable(target):
            self.path(source, event_id).rename(self.path(target, event_id))

    def delete(self, state: str, event_id: str) -> None:
        with self.noticeable(state):
            self.path(state, event_id).unlink()

    def noticeable(self, state: str) -> _Noticeable:
        """Whatever is done in this context changes the directory's time, also where clocks tick slowly."""
        return _Noticeable(self.home / state)


class _Noticeable:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._before = self._folder.stat().st_mtime_ns

    def __exit__(self, *_: object) -> None:
        while self._folder.stat().st_mtime_ns == self._before:
            os.utime(self._folder)


def document(event_id: str, **more: Any) -> str:
    """The text of a document somebody wrote by hand."""
    return json.dumps({**Envelope(type="T", payload={"n": 1}, event_id=event_id).to_dict(), **more})


def event(event_id: str, **more: Any) -> Envelope:
    """An event to publish."""
    return Envelope(**{"type": "T", "event_id": event_id, **more})
