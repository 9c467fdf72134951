"""What a general notes about a task while it works on it, so that its next process goes on where this one stopped.

One file for each task under way or parked: ``state/<general>/campaigns/<task>.json``. It is gone when the task is
settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from kingdom.court.errors import InvalidId
from kingdom.court.files import encode, read_json, write_atomic
from kingdom.court.home import checked, named_path

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.port import Outcome


@dataclass(slots=True)
class Note:
    """How far a task has come."""

    task_id: str
    started_at: float
    soldier: str | None = None  # the run that is under way; None between two runs
    retries: int = 0
    restarts: int = 0  # runs that died together with us
    errors: list[str] = field(default_factory=list)  # of the runs so far
    cancelled: str | None = None  # why it shall end
    tokens: dict[str, int] = field(default_factory=dict)  # of the runs so far
    cost_usd: float | None = None

    def charge(self, outcome: Outcome) -> None:
        """Add what a run used."""
        used = outcome.tokens
        for kind in ("input", "output", "cache_read", "cache_write"):
            if count := getattr(used, kind):
                self.tokens[kind] = self.tokens.get(kind, 0) + count
        if outcome.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + outcome.cost_usd


class Notes:
    """The notes of one general."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "campaigns"

    def load(self, task_id: str) -> Note | None:
        """The note of a task, or None when there is none that makes sense."""
        document = read_json(self._path(task_id))
        if not isinstance(document, dict) or not isinstance(document.get("started_at"), (int, float)):
            return None
        known = {item.name for item in fields(Note)}
        note = Note(**{**{key: value for key, value in document.items() if key in known}, "task_id": task_id})
        try:
            note.soldier = None if note.soldier is None else checked("soldier", note.soldier)
        except InvalidId:
            return None
        return note

    def save(self, note: Note, *, durable: bool = True) -> None:
        """Write a note."""
        path, content = self.file(note)
        try:
            write_atomic(path, content, durable=durable)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content, durable=durable)

    def file(self, note: Note) -> tuple[Path, bytes]:
        """Where a note is written, and what: for those who write several files together."""
        return self._path(note.task_id), encode({name: getattr(note, name) for name in note.__slots__})

    def forget(self, task_id: str) -> None:
        """Remove the note of a task that has ended."""
        self._path(task_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a killed process was writing. Only at start, while nobody else writes here."""
        for path in self.folder.glob(".tmp-*"):
            path.unlink(missing_ok=True)

    def ids(self) -> list[str]:
        """The tasks there are notes of."""
        return sorted(path.stem for path in self.folder.glob("task-*.json"))

    def soldiers(self) -> set[str]:
        """The soldiers that may be at work."""
        notes = [self.load(task_id) for task_id in self.ids()]
        return {note.soldier for note in notes if note is not None and note.soldier is not None}

    def _path(self, task_id: str) -> Path:
        return named_path(self.folder, "task", task_id, ".json")
