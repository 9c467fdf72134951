"""Lines of a journal are changed, and every reader goes on where it was."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.journal import Journal, Reader, rotate
from kingdom.journal.catalog import TaskFailed
from kingdom.journal.redaction import redact_log

NOW = datetime(2026, 2, 7, 12, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A rotated file with the tasks 0 to 3, and a live one with 4 and 5; each error names ann."""
    path = tmp_path / "events.log"
    journal = Journal(path, NOW.timestamp)
    for number in range(4):
        journal.emit(TaskFailed(str(number), "ann said no", 0), "gen-test")
    assert rotate(path, NOW, max_bytes=1)
    for number in (4, 5):
        journal.emit(TaskFailed(str(number), "ann said no", 0), "gen-test")
    return path


def without_ann(line: bytes) -> bytes:
    return line.replace(b"ann said no", b"")


def tasks(reader: Reader) -> list[str]:
    return [str(entry.fields["task_id"]) for entry in reader.read()]


@pytest.mark.parametrize("read", range(7))
@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_goes_on_after_the_line_it_read(log: Path, tmp_path: Path, read: int, times: int) -> None:
    cursor, problems = tmp_path / "cursor", []
    with Reader(log, cursor) as reader:
        for _, _ in zip(range(read), reader.read(), strict=False):
            pass
        reader.commit()
    sizes = [file.stat().st_size for file in sorted(tmp_path.glob("*.log"))]
    assert redact_log(log, without_ann) == 6
    if times == 2:
        assert redact_log(log, lambda line: line.replace(b"gen-test", b"gen-x")) == 6
    assert [file.stat().st_size for file in sorted(tmp_path.glob("*.log"))] == sizes
    assert b"ann" not in b"".join(file.read_bytes() for file in tmp_path.glob("*.log"))
    with Reader(log, cursor, report=problems.append) as again:
        assert tasks(again) == [str(number) for number in range(read, 6)]
    assert problems == []
    with Reader(log, report=problems.append) as first:
        assert [sum(len(batch) for batch in first.read_records())] == [6]


def test_what_is_not_changed_keeps_its_file_and_what_is_keeps_its_time(log: Path, tmp_path: Path) -> None:
    (old,) = tmp_path.glob("events-*.log")
    os.utime(old, (1, 1))
    live = log.stat()
    assert redact_log(log, lambda line: line.replace(b'"3"', b'"x"')) == 1
    assert old.stat().st_mtime == 1
    now = log.stat()
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (live.st_ino, live.st_size, live.st_mtime_ns)  # it was read
    assert not (tmp_path / ".redacted.json").exists(), "the first bytes are as they were"
    assert redact_log(log, lambda line: line) == 0


def test_a_line_that_became_longer_is_blanked(log: Path) -> None:
    redact_log(log, lambda line: line + b"!" if b'"4"' in line else line)
    problems: list[object] = []
    with Reader(log, report=problems.append) as reader:
        assert tasks(reader) == ["0", "1", "2", "3", "5"]
    assert problems == []


def test_a_process_that_is_killed_before_a_file_is_replaced_leaves_cursors_valid(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = tmp_path / "cursor"
    with Reader(log, cursor) as reader:
        next(reader.read())
        reader.commit()

    def killed(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kingdom.journal.redaction.write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            redact_log(log, without_ann)
    for _ in range(2):
        with Reader(log, cursor) as again:
            assert tasks(again) == ["1", "2", "3", "4", "5"]
        redact_log(log, without_ann)
