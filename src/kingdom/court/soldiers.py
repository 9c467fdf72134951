"""Soldiers and their transcripts, read from the files of a home."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import AgentsError
from kingdom.agents.folder import RunFolder
from kingdom.agents.transcript import MAX_LINE, LineSplitter, Transcript, describe_event, reader_of
from kingdom.base.files import read_object
from kingdom.base.times import epoch_seconds
from kingdom.court.errors import CourtError
from kingdom.court.supervisor.record import ProcessHandle

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.port import Order
    from kingdom.court.home import Home


_PROCESSLESS_ENGINES: Final = ("scripted", "workflow")  # engines without a process


@dataclass(frozen=True, slots=True)
class Soldier:
    id: str
    folder: Path
    order: Order
    pid: int | None
    shim: ProcessHandle | None  # the process that supervises it; None when it has none, or not yet
    started_at: float | None
    transcript: Path
    errors: Path
    played: bool = False
    """Whether it runs inside its general's process."""

    @property
    def task_id(self) -> str:
        """The id of its task."""
        return self.order.task_id

    @property
    def general(self) -> str:
        return self.order.labels.get("general", "")

    @property
    def alive(self) -> bool:
        return self.shim is not None and self.shim.alive

    @property
    def at_work(self) -> bool:
        """Whether it is running, with or without a process of its own."""
        return self.alive or self.played

    def interrupt(self) -> None:
        """End the soldier and every process it started."""
        if self.shim is not None:
            self.shim.send(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until it has ended; return whether it has."""
        return self.shim is None or self.shim.wait(seconds)


def all_soldiers(home: Home) -> Iterator[Soldier]:
    """Yield all soldiers that have files, sorted by id."""
    try:
        names = sorted(path.name for path in home.soldiers.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        found = find_soldier(home, name)
        if found is not None:
            yield found


def soldiers_of_task(home: Home, task_id: str) -> list[Soldier]:
    """Return the soldiers of a task, in the order in which they started."""
    found = [soldier for soldier in all_soldiers(home) if soldier.task_id == task_id]
    return sorted(found, key=_start_key)


def _start_key(soldier: Soldier) -> tuple[float, str]:
    return soldier.started_at or 0.0, soldier.id


def find_soldier(home: Home, name: str) -> Soldier | None:
    """Return the soldier with this id; None when it has no valid files."""
    order = _order_of(home, name)
    if order is None:
        return None
    folder = RunFolder(home.soldiers, name)
    identity = read_object(folder.identity)
    played = not identity and _is_played(home, folder, order)
    pid, shim_pid, shim_start = (identity.get(key) for key in ("pid", "shim_pid", "shim_start"))
    return Soldier(
        id=name,
        folder=folder.path,
        order=order,
        pid=pid if isinstance(pid, int) else None,
        shim=ProcessHandle.read({"pid": shim_pid, "start_time": shim_start, "boot_id": identity.get("boot_id")}),
        started_at=_modified(folder.order) if played else epoch_seconds(identity.get("started_at")),
        transcript=home.sessions / f"{name}.json",
        errors=home.sessions / f"{name}.err",
        played=played,
    )


def _order_of(home: Home, name: str) -> Order | None:
    """Return the order of a soldier; None for a folder that is not one's, or is incomplete."""
    try:
        return RunFolder(home.soldiers, name).read_order()
    except (AgentsError, KeyError, TypeError, OSError):
        return None


def _is_played(home: Home, folder: RunFolder, order: Order) -> bool:
    """Whether a run without a process is active: its task is open, and the run has no outcome."""
    try:
        task = home.soldier_id(order.task_id)
        return (
            order.engine in _PROCESSLESS_ENGINES
            and not folder.outcome.exists()
            and task.read_text().strip() == folder.run_id
            and not home.result(order.task_id).exists()
        )
    except (OSError, ValueError, CourtError):
        return False


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


class SoldierIndex:
    """Finds soldiers repeatedly, and reads what never changes only once. Thread-safe."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._tasks: dict[str, str] = {}  # by soldier
        self._ended: set[str] = set()

    def of_task(self, task_id: str) -> list[Soldier]:
        """Return the soldiers of a task, in the order of their start."""
        found = [find_soldier(self._home, name) for name in self.ids_of([task_id])[task_id]]
        return sorted((soldier for soldier in found if soldier is not None), key=_start_key)

    def ids_of(self, task_ids: Iterable[str]) -> dict[str, list[str]]:
        """Return the ids of the soldiers of several tasks, with one look at the folder."""
        found: dict[str, list[str]] = {task_id: [] for task_id in task_ids}
        with self._lock:
            for name in self._names() - self._tasks.keys():
                order = _order_of(self._home, name)
                if order is not None:  # otherwise its files may follow
                    self._tasks[name] = order.task_id
            for name, task_id in self._tasks.items():
                if task_id in found:
                    found[task_id].append(name)
        return {task_id: sorted(names) for task_id, names in found.items()}

    def at_work(self) -> list[Soldier]:
        """Return the running soldiers, sorted by id."""
        found = []
        with self._lock:
            for name in sorted(self._names() - self._ended):
                if (self._home.soldiers / name / "outcome.json").exists():
                    self._ended.add(name)
                elif (soldier := find_soldier(self._home, name)) is not None and soldier.at_work:
                    found.append(soldier)
        return found

    def _names(self) -> set[str]:
        try:
            with os.scandir(self._home.soldiers) as entries:
                names = {entry.name for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            names = set()
        self._tasks = {name: task for name, task in self._tasks.items() if name in names}
        self._ended &= names
        return names


# ── transcripts ───────────────────────────────────────────────────────────────────────────────────────────────────

TRANSCRIPT_PAGE_BYTES: Final = 64 * 1024
_TAIL_LINES: Final = 50
_TAIL_START_BYTES: Final = 256 * 1024  # of a long transcript, at the first read


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """One event of a transcript."""

    kind: str
    """``text``, ``tooluse``, ``began``, ``finished``, ``ratelimit``, or ``raw`` for a line that is not understood."""
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """A part of a transcript."""

    items: list[TranscriptItem] = field(default_factory=list)
    next_offset: int = 0
    """The offset of the next part."""
    size: int = 0
    """The current size of the transcript; when ``next_offset`` is smaller, there is more to read."""


def transcript_lines(soldier: Soldier, engines: Mapping[str, Engine | InProcessEngine]) -> Iterator[str]:
    """Yield the transcript of a soldier as lines for people."""
    if soldier.order.engine in engines:
        said = map(describe_event, Transcript(soldier.transcript, soldier.order, engines).read_new())
        yield from filter(None, said)
    else:  # the engine is not installed any more: return the raw lines
        with soldier.transcript.open("rb") as file:
            for raw in file:
                yield raw.rstrip(b"\n").decode(errors="replace")


def read_transcript_page(
    soldier: Soldier,
    engines: Mapping[str, Engine | InProcessEngine],
    offset: int,
    *,
    raw: bool = False,
    most: int = TRANSCRIPT_PAGE_BYTES,
) -> TranscriptPage:
    """Read whole lines from ``offset`` on, about ``most`` bytes; a negative offset counts from the end.

    Raises ``FileNotFoundError`` when there is no transcript.
    """
    with soldier.transcript.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = min(offset, size) if offset >= 0 else max(size + offset, 0)
        if begin and offset < 0:  # start at the next whole line
            file.seek(begin - 1)
            begin += len(file.readline(MAX_LINE)) - 1
        file.seek(begin)
        data = file.read(most)
        if b"\n" not in data and len(data) == most:  # one long line: read all of it, or the reader could never pass it
            data += file.readline(MAX_LINE)
            if not data.endswith(b"\n") and begin + len(data) < size:
                return TranscriptPage([TranscriptItem("raw", "(line too long)")], begin + len(data), size)
    whole = data[: data.rfind(b"\n") + 1]
    known = soldier.order.engine in engines and not raw
    reader = reader_of(soldier.order, engines) if known else None
    items: list[TranscriptItem] = []
    for line in filter(None, LineSplitter().feed(whole)):
        if reader is None:
            items.append(TranscriptItem("raw", line.decode(errors="replace")))
            continue
        said = ((type(event).__name__.lower(), describe_event(event)) for event in reader(line))
        items += [TranscriptItem(kind, text) for kind, text in said if text]
    return TranscriptPage(items, begin + len(whole), size)


def transcript_part_before(soldier: Soldier, end: int, most: int = TRANSCRIPT_PAGE_BYTES) -> int:
    """Return where to begin, to read the whole lines of about ``most`` bytes before ``end``; a longer line is whole.

    Raises ``FileNotFoundError`` when there is no transcript.
    """
    with soldier.transcript.open("rb") as file:
        end = min(end, file.seek(0, os.SEEK_END))
        if end <= most:
            return 0
        file.seek(end - most - 1)
        if (found := file.read(most).find(b"\n")) >= 0:  # not the last byte: a line break after which nothing comes
            return end - most + found
        begin = max(end - MAX_LINE, 0)
        file.seek(begin)
        return begin + file.read(end - begin - 1).rfind(b"\n") + 1


class TranscriptTails:
    """Follows the transcripts of several soldiers."""

    def __init__(self, home: Home, engines: Mapping[str, Engine | InProcessEngine]) -> None:
        self._home = home
        self._engines = engines
        self._tails: dict[str, tuple[Transcript, deque[str]]] = {}

    def read(self, soldiers: Iterable[str]) -> dict[str, list[str]]:
        """Return the last lines of each of these soldiers; drop the state of all others."""
        wanted = list(soldiers)
        self._tails = {name: tail for name, tail in self._tails.items() if name in wanted}
        return {name: self._last(name) for name in wanted}

    def _last(self, name: str) -> list[str]:
        if name not in self._tails:
            soldier = find_soldier(self._home, name)
            if soldier is None:
                return []
            transcript = Transcript(soldier.transcript, soldier.order, self._engines, last=_TAIL_START_BYTES)
            self._tails[name] = transcript, deque(maxlen=_TAIL_LINES)
        transcript, lines = self._tails[name]
        for event in transcript.read_new():
            lines.extend(line for line in describe_event(event).splitlines() if line.strip())
        return list(lines)
