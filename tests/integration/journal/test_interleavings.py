"""For any interleaving of writers, rotation and reader restarts the reader gives each line once and in order."""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kingdom.base.locks import try_lock
from kingdom.journal import Journal, Problem, Reader, rotate
from kingdom.journal import writer as writer_module
from kingdom.journal.catalog import TaskStarted
from tests.support.searching import examples

Step = tuple[str, int]


class World:
    """A log and everybody at it, moved on step by step; knows what was written and what was read."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "events.log"
        self.cursor = folder / "cursor"
        self.now = datetime(2026, 2, 8, 1, tzinfo=UTC)
        self.journals = [Journal(self.log, clock=lambda: self.now.timestamp()) for _ in range(3)]
        self.held: list[tuple[int, bytes]] = []
        self.half: tuple[int, bytes] | None = None
        self.count = 0
        self.written: dict[str, list[int]] = defaultdict(list)
        self.problems: list[Problem] = []
        self.taken: list[tuple[str, int]] = []
        self.committed = 0
        self.reader = self._reader()

    def _reader(self) -> Reader:
        return Reader(self.log, self.cursor, report=self.problems.append, sync=False)

    def _number(self, writer: str) -> int:
        self.count += 1
        self.written[writer].append(self.count)
        return self.count

    def _line(self, writer: str, number: int) -> bytes:
        data = {"task_id": f"{writer}:{number}"}
        document = {"ts": "2026-02-08T01:00:00Z", "type": "task.started", "actor": "gen-a", "data": data}
        return json.dumps(document).encode() + b"\n"

    def emit(self, which: int) -> None:
        """A writer appends a line."""
        writer = f"writer-{which % 3}"
        self.journals[which % 3].emit(TaskStarted(f"{writer}:{self._number(writer)}"), "gen-a")

    def reopen(self, which: int) -> None:
        """A writer is restarted."""
        self.journals[which % 3].close()

    def hold(self, _: int) -> None:
        """A writer is stopped after it looked at the name of the file, and before it wrote."""
        fd = os.open(self.log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        if try_lock(fd):
            writer = f"late-{len(self.written)}"
            self.held.append((fd, self._line(writer, self._number(writer))))
        else:
            os.close(fd)

    def release(self, _: int) -> None:
        """It goes on, wherever its file is by now."""
        if self.held:
            fd, line = self.held.pop(0)
            size = os.fstat(fd).st_size
            os.write(fd, b"\n" + line if size and os.pread(fd, 1, size - 1) != b"\n" else line)
            os.close(fd)

    def tear(self, cut: int) -> None:
        """A writer gets only so far with its line."""
        fd = os.open(self.log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.close(fd)
            return
        line = self._line("slow", self.count + 1)
        cut = 1 + cut % (len(line) - 2)
        os.write(fd, line[:cut])
        if self.half:
            os.close(self.half[0])
        self.half = fd, line[cut:]

    def mend(self, _: int) -> None:
        """It finishes its line, if nobody came between."""
        if self.half is None:
            return
        (fd, rest), self.half = self.half, None
        still_live = self.log.exists() and os.fstat(fd).st_ino == self.log.stat().st_ino
        last = os.pread(fd, 1, os.fstat(fd).st_size - 1)
        if still_live and last != b"\n" and rest.endswith(b'%d"}}\n' % (self.count + 1)):
            self._number("slow")
            os.write(fd, rest)
        os.close(fd)

    def rotate(self, hours: int) -> None:
        """The log is closed; the clock may go back."""
        self.now += timedelta(hours=hours - 20)
        rotate(self.log, self.now, max_bytes=1)

    def rotate_and_die(self, hours: int) -> None:
        """The log is closed, and its rotator killed before it made the new file."""
        self.rotate(hours)
        if self.log.exists() and self.log.stat().st_size == 0 and not self.held and self.half is None:
            self.log.unlink()

    def read(self, lines: int) -> None:
        """The reader takes a few lines."""
        if lines == 0:
            return
        for number, entry in enumerate(self.reader.read(), 1):
            writer, _, count = entry.fields["task_id"].partition(":")
            self.taken.append((writer, int(count)))
            if number == lines:
                break

    def commit(self, _: int) -> None:
        """The reader's place is kept."""
        self.reader.commit()
        self.committed = len(self.taken)

    def restart(self, _: int) -> None:
        """The reader is killed; what it had not committed comes again."""
        self.reader.close()
        del self.taken[self.committed :]
        self.reader = self._reader()

    def finish(self) -> None:
        """Everybody comes to an end, and the reader catches up."""
        while self.held:
            self.release(0)
        self.mend(0)
        self.read(-1)
        for journal in self.journals:
            journal.close()
        self.reader.close()


NAMES = ["emit", "reopen", "hold", "release", "tear", "mend", "rotate", "rotate_and_die", "read", "commit", "restart"]
STEPS: dict[str, Callable[[World, int], None]] = {name: getattr(World, name) for name in NAMES}
OFTEN = ["emit"] * 4 + ["read"] * 2 + ["rotate"]


@given(st.lists(st.tuples(st.sampled_from([*STEPS, *OFTEN]), st.integers(0, 60)), max_size=50))
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_each_line_is_read_once_and_in_order(steps: list[Step]):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(writer_module, "PATIENCE", 0.0):
        world = World(Path(folder))
        for journal in world.journals:
            journal._patience = 0.0
        with mock.patch.object(writer_module, "_SHORT_PATIENCE", 0.0):
            for name, number in steps:
                STEPS[name](world, number)
            world.finish()
        read = defaultdict(list)
        for writer, number in world.taken:
            read[writer].append(number)
        assert read == world.written
        on_time = [number for writer, number in world.taken if not writer.startswith("late")]
        assert on_time == sorted(on_time)
        assert {problem.kind for problem in world.problems} <= {"not-event", "torn"}
