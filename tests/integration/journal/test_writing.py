"""Appending: whole lines, from many threads and processes, on disks that fill up and files that are rotated away."""

from __future__ import annotations

import codecs
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.locks import try_lock
from kingdom.journal import InvalidEvent, Journal, JournalUnavailable, Reader, catalog, rotate
from kingdom.journal import writer as writer_module
from kingdom.journal.catalog import TaskFailed, TaskStarted

START = 1_770_458_400.0  # 2026-02-07T10:00:00Z
LATER = datetime(2026, 2, 8, 1, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def journal(log: Path) -> Iterator[Journal]:
    journal = Journal(log, clock=lambda: START)
    yield journal
    journal.close()


def task_ids(*files: Path) -> list[str]:
    return [json.loads(line)["data"]["task_id"] for file in files for line in file.read_bytes().splitlines()]


def test_a_line_is_exactly_as_specified(journal: Journal, log: Path):
    journal.emit(TaskStarted("task-20260207-001"), "gen-pr")
    journal.emit("task.started", "gen-pr", {"task_id": "task-20260207-002"})
    journal.emit(catalog.SystemStartup("1.0"))
    assert log.read_text().splitlines() == [
        '{"ts":"2026-02-07T10:00:00Z","type":"task.started","actor":"gen-pr","data":{"task_id":"task-20260207-001"}}',
        '{"ts":"2026-02-07T10:00:00Z","type":"task.started","actor":"gen-pr","data":{"task_id":"task-20260207-002"}}',
        '{"ts":"2026-02-07T10:00:00Z","type":"system.startup","actor":"system","data":{"version":"1.0"}}',
    ]


def test_the_time_is_the_clock_s(log: Path):
    times = iter([START, START + 0.9, START + 1])
    journal = Journal(log, clock=lambda: next(times))
    for number in range(3):
        journal.emit(TaskStarted(str(number)), "gen-a")
    assert [json.loads(line)["ts"][-3:] for line in log.read_text().splitlines()] == ["00Z", "00Z", "01Z"]


@pytest.mark.parametrize(
    "call",
    [
        lambda journal: journal.emit("task.dreamt", "gen-pr", {}),
        lambda journal: journal.emit("task.started", "king", {"task_id": "t"}),
        lambda journal: journal.emit("task.started", "gen-pr"),
        lambda journal: journal.emit(TaskStarted("t"), "king"),
        lambda journal: journal.emit(TaskStarted("t"), "gen-pr", {"task_id": "t"}),
    ],
)
def test_what_the_catalog_does_not_allow_is_refused_and_writes_nothing(
    journal: Journal, log: Path, call: Callable[[Any], None]
):
    with pytest.raises(InvalidEvent):
        call(journal)
    assert not log.exists()


def test_each_line_is_one_write(journal: Journal, monkeypatch: pytest.MonkeyPatch):
    writes = []

    def write(fd: int, data: bytes) -> int:
        writes.append(bytes(data))
        return real(fd, data)

    real = os.write
    monkeypatch.setattr(writer_module.os, "write", write)
    journal.emit(TaskStarted("t1"), "gen-pr")
    journal.emit(TaskFailed("t2", "x" * 500_000, 1), "gen-pr")
    assert len(writes) == 2
    assert all(line.endswith(b"}\n") for line in writes)


def test_a_journal_notices_that_its_file_was_rotated_away(journal: Journal, log: Path):
    journal.emit(TaskStarted("1"), "gen-a")
    done = rotate(log, LATER)
    assert done is not None
    journal.emit(TaskStarted("2"), "gen-a")
    assert (task_ids(done.file), task_ids(log)) == (["1"], ["2"])
    log.rename(log.with_name("elsewhere"))
    journal.emit(TaskStarted("3"), "gen-a")
    log.unlink()
    journal.emit(TaskStarted("4"), "gen-a")
    assert task_ids(log) == ["4"]


def test_a_line_that_another_writer_left_unfinished_is_never_continued(journal: Journal, log: Path):
    journal.emit(TaskStarted("1"), "gen-a")
    with log.open("ab") as file:
        file.write(b'{"ts":"2026-02-07T10:0')
    journal.emit(TaskStarted("2"), "gen-a")
    journal.emit(TaskStarted("3"), "gen-a")
    lines = log.read_bytes().splitlines()
    assert lines[1] == b'{"ts":"2026-02-07T10:0'
    assert [json.loads(lines[number])["data"]["task_id"] for number in (0, 2, 3)] == ["1", "2", "3"]


def test_a_disk_that_is_full_in_the_middle_of_a_line_spoils_no_other_line(tmp_path: Path):
    """A limit on the size of files stands in for the disk: the kernel then writes a part of the line, too."""
    script = """
import resource, sys
from kingdom.journal import Journal, JournalUnavailable
from kingdom.journal.catalog import TaskFailed
journal = Journal(sys.argv[1], clock=lambda: 0)
journal.emit(TaskFailed("1", "fits", 0), "gen-a")
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
try:
    journal.emit(TaskFailed("2", "x" * 200, 0), "gen-a")
except JournalUnavailable as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.emit(TaskFailed("3", "fits again", 0), "gen-a")
"""
    log = tmp_path / "events.log"
    done = subprocess.run(
        [sys.executable, "-c", script, str(log)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "cannot write to" in done.stdout
    assert "make room, and the next line goes through" in done.stdout
    first, torn, third = log.read_bytes().splitlines()
    assert torn.startswith(b'{"ts":"1970')
    assert len(first) + 1 + len(torn) == 200
    assert [json.loads(line)["data"]["task_id"] for line in (first, third)] == ["1", "3"]


def test_a_short_write_is_continued(journal: Journal, log: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.write
    monkeypatch.setattr(writer_module.os, "write", lambda fd, data: real(fd, bytes(data)[:7]))
    journal.emit(TaskStarted("1"), "gen-a")
    journal.emit(TaskStarted("2"), "gen-a")
    assert task_ids(log) == ["1", "2"]


def test_threads_share_a_journal(journal: Journal, log: Path):
    def run(name: str) -> None:
        for number in range(200):
            journal.emit(TaskStarted(f"{name}-{number}"), "gen-a")

    threads = [threading.Thread(target=run, args=(str(name),)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = task_ids(log)
    assert len(found) == 800
    for name in range(4):
        assert [item for item in found if item.startswith(f"{name}-")] == [f"{name}-{number}" for number in range(200)]


def test_a_forked_child_opens_the_file_for_itself(journal: Journal, log: Path):
    journal.emit(TaskStarted("parent"), "gen-a")
    fd = journal._opened[0]  # type: ignore[index]
    assert try_lock(fd)
    child = os.fork()
    if child == 0:
        # With the parent's descriptor the child would share its lock, and let go of it.
        os._exit(0 if journal._opened is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    own = os.open(log, os.O_RDONLY)
    try:
        assert not try_lock(own), "the parent still has its lock"
    finally:
        os.close(own)


def test_a_writer_that_was_stopped_holding_the_lock_holds_up_nobody_for_ever(
    journal: Journal, log: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(journal, "_patience", 0.02)
    log.touch()
    script = (
        "import fcntl, signal, sys\n"
        "file = open(sys.argv[1], 'ab')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(log)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            holder.send_signal(signal.SIGSTOP)
            journal.emit(TaskStarted("1"), "gen-a")
            journal.emit(TaskStarted("2"), "gen-a")
        finally:
            holder.kill()
    assert task_ids(log) == ["1", "2"]


# ── places that cannot be written ─────────────────────────────────────────────────────────────────────────────


def test_a_directory_or_a_pipe_in_place_of_the_file_is_a_clear_error(journal: Journal, log: Path):
    log.mkdir()
    with pytest.raises(JournalUnavailable, match=r"cannot write to .*events\.log: Is a directory; move it away"):
        journal.emit(TaskStarted("1"), "gen-a")
    with pytest.raises(JournalUnavailable, match="it is not a regular file; move it away"):
        list(Reader(log).read())
    log.rmdir()
    os.mkfifo(log)
    with pytest.raises(JournalUnavailable, match="it is not a regular file; move it away"):
        journal.emit(TaskStarted("1"), "gen-a")
    with pytest.raises(JournalUnavailable, match="it is not a regular file; move it away"):
        list(Reader(log).read())
    log.unlink()
    journal.emit(TaskStarted("1"), "gen-a")
    assert task_ids(log) == ["1"]


def test_a_directory_that_does_not_exist_is_a_clear_error(tmp_path: Path):
    nowhere = tmp_path / "nowhere" / "events.log"
    with pytest.raises(JournalUnavailable, match="the directory has to exist") as caught:
        Journal(nowhere).emit(TaskStarted("1"), "gen-a")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(JournalUnavailable, match="the directory has to exist"):
        list(Reader(nowhere).read())


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Go on as a user who owns nothing here; where we are not root, we are that already."""
    root = os.geteuid() == 0
    codecs.lookup("ascii")  # imported when first used, from where that user may not look
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_file_of_somebody_else_and_a_directory_without_permission_are_clear_errors():
    # Not below pytest's own folder, which is closed to other users.
    with tempfile.TemporaryDirectory(prefix="kingdom-journal-") as name:
        folder, log = Path(name), Path(name) / "events.log"
        journal = Journal(log, clock=lambda: START)
        journal.emit(TaskStarted("0"), "gen-a")
        log.chmod(0o000)
        folder.chmod(0o555)
        attempts: dict[str, Callable[[], object]] = {
            f"write to {log}": lambda: Journal(log).emit(TaskStarted("1"), "gen-a"),
            f"rotate {log}": lambda: rotate(log, LATER),
            f"read {log}": lambda: list(Reader(log).read()),
            f"write the cursor {folder}/cursor": lambda: Reader(log, folder / "cursor").commit(),
        }
        with as_somebody_else():
            for what, attempt in attempts.items():
                with pytest.raises(JournalUnavailable) as caught:
                    attempt()
                assert str(caught.value).startswith(f"cannot {what}: Permission denied; ")
                assert f"belongs to user {os.getuid()} and this process runs as {os.geteuid()}" in str(caught.value)
        folder.chmod(0o755)
        log.chmod(0o644)
        journal.close()
        assert task_ids(log) == ["0"]
        assert [entry.name for entry in folder.iterdir()] == ["events.log"]
