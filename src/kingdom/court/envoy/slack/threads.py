"""The envoy's state files: which thread belongs to which task, which questions are open, when the last report went out.

Each is one JSON object with an entry for each task, for people to read; only the envoy writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kingdom.court.home import Home

Entry = dict[str, Any]
_TOO_LATE: Final = 60.0  # seconds after an answer in which others may still think that the question is open


class Entries:
    """One of the files. Every change is on the disk when it returns; a power cut it outlives only if ``durable``."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        self._entries: Mapping[str, Entry] = {}
        self._read: tuple[int, int, int] | None = None

    def all(self) -> Mapping[str, Entry]:
        """What stands in it now: not to be changed."""
        now = self._version()
        if now is None or now != self._read:
            found = read_json(self._path)
            entries = found if isinstance(found, dict) else {}
            self._entries = {key: entry for key, entry in entries.items() if isinstance(entry, dict)}
            self._read = now
        return self._entries

    def get(self, key: str) -> Entry | None:
        """One entry."""
        found = self.all().get(key)
        return None if found is None else dict(found)

    def put(self, key: str, entry: Entry) -> None:
        """Add an entry, or replace it."""
        entries = self.all()
        if entries.get(key) != entry:
            self._write({**entries, key: entry})

    def remove(self, keys: Iterable[str]) -> None:
        """Take entries out; the file stays."""
        entries = self.all()
        gone = entries.keys() & set(keys)
        if gone:
            self._write({key: entry for key, entry in entries.items() if key not in gone})

    def _write(self, entries: dict[str, Entry]) -> None:
        write_json(self._path, entries, durable=self._durable)
        self._entries, self._read = entries, self._version()

    def _version(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class Threads:
    """All of them."""

    def __init__(self, home: Home) -> None:
        folder = home.role("envoy")
        folder.mkdir(parents=True, exist_ok=True)
        self.mappings = Entries(folder / "thread-mappings.json")
        """By the task that a thread was begun for: channel, thread_ts, event_id, created_at."""
        self.awaiting = Entries(folder / "awaiting-responses.json")
        """By the task that asks: channel, thread_ts, message_ts, msg_id, choices, deadline, created_at; and ``answer``,
        once it has one that is being passed on."""
        self.received = Entries(folder / "received.json", durable=False)
        """By event: the post of a person that it was made of (channel, ts), until it is dealt with."""
        self._report = folder / "report-sent.json"

    def asked_in(self, channel: str, thread_ts: str) -> str | None:
        """The task whose question is open in a thread."""
        for task, one in self.awaiting.all().items():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts) and not one.get("answer"):
                return task
        return None

    def answered_in(self, channel: str, thread_ts: str, answered_ts: str) -> None:
        """Note in the mapping of a thread when a question in it was answered last."""
        for task, one in self.mappings.all().items():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts):
                self.mappings.put(task, {**one, "answered_ts": answered_ts})

    def just_answered(self, channel: str, thread_ts: str, ts: str) -> bool:
        """Whether a reply comes so soon after another one's answer that it was most likely meant as one, too."""
        for one in self.mappings.all().values():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts) and one.get("answered_ts"):
                return float(ts) - float(one["answered_ts"]) < _TOO_LATE
        return False

    def report_sent(self, date: str, message_id: str, sent_at: str) -> None:
        """Note which report was the last."""
        write_json(self._report, {"date": date, "msg_id": message_id, "sent_at": sent_at})
