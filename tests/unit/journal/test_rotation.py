"""When a log is closed, and under which name."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from kingdom.base.locks import try_lock
from kingdom.journal import JournalUnavailable, copy_to_old, rotate, rotate_to_old
from kingdom.journal.logfiles import list_rotated, rotated_name, rotation_key, take_snapshot

SEOUL = timezone(timedelta(hours=9))


def at(text: str, zone: timezone = UTC) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def write(log: Path, *times: str) -> str:
    with log.open("a") as file:
        for ts in times:
            file.write(json.dumps({"ts": ts, "type": "x.y", "actor": "a", "data": {}}) + "\n")
    return log.read_text()


def names(log: Path) -> list[str]:
    return [split.name for split in list_rotated(log)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


def test_at_the_turn_of_the_day_the_file_is_named_for_the_day_that_ended(log: Path):
    text = write(log, "2026-02-07T10:00:00Z")
    assert rotate(log, at("2026-02-07 23:59:59")) is None
    done = rotate(log, at("2026-02-08 00:00:00"))
    assert done is not None
    assert (done.file.name, done.size, done.reason) == ("events-20260207.log", len(text), "day")
    assert done.file.read_text() == text
    assert log.read_text() == ""
    assert rotate(log, at("2026-02-08 00:00:01")) is None, "an empty file is never closed"
    write(log, "2026-02-08T00:00:02Z")
    assert rotate(log, at("2026-02-08 12:00:00")) is None
    assert names(log) == ["events-20260207.log"]


def test_days_are_those_of_the_time_zone_that_now_has(log: Path):
    write(log, "2026-02-07T14:59:59Z")  # 23:59:59 in Seoul
    assert rotate(log, at("2026-02-07 23:59:59", SEOUL)) is None
    done = rotate(log, at("2026-02-08 00:00:00", SEOUL))
    assert done is not None
    assert done.file.name == "events-20260207.log"
    with pytest.raises(ValueError, match="no time zone"):
        rotate(log, datetime(2026, 2, 8))  # noqa: DTZ001


def test_missed_days_are_closed_together_under_the_last_of_them(log: Path):
    write(log, "2026-02-04T10:00:00Z", "2026-02-06T10:00:00Z")
    done = rotate(log, at("2026-02-08 03:00:00"))
    assert done is not None
    assert done.file.name == "events-20260207.log"


def test_a_large_file_is_closed_under_the_current_day_and_nothing_is_written_over(log: Path):
    texts = []
    for _ in range(3):
        texts.append(write(log, "2026-02-07T10:00:00Z"))
        assert rotate(log, at("2026-02-07 11:00:00"), max_bytes=len(texts[-1]) + 1) is None
        done = rotate(log, at("2026-02-07 11:00:00"), max_bytes=len(texts[-1]))
        assert done is not None
        assert done.reason == "size"
    texts.append(write(log, "2026-02-07T23:00:00Z"))
    rotate(log, at("2026-02-08 00:00:00"))
    assert names(log) == [
        "events-20260207.log",
        "events-20260207.1.log",
        "events-20260207.2.log",
        "events-20260207.3.log",
    ]
    assert [log.with_name(name).read_text() for name in names(log)] == texts


def test_a_clock_that_goes_back_does_not_change_the_order_of_the_names(log: Path):
    for now in ("2026-02-10 12:00:00", "2026-02-07 12:00:00", "2026-02-11 12:00:00"):
        write(log, now.replace(" ", "T") + "Z")
        assert rotate(log, at(now), max_bytes=1) is not None
    assert names(log) == ["events-20260210.log", "events-20260210.1.log", "events-20260211.log"]


def test_more_than_ten_files_of_a_day_are_in_order(tmp_path: Path):
    log = tmp_path / "events.log"
    for number in range(12):
        assert rotation_key(log, rotated_name(log, ("20260207", number))) == ("20260207", number)
        log.with_name(rotated_name(log, ("20260207", number))).touch()
    assert [split.key[1] for split in list_rotated(log)] == list(range(12))


@pytest.mark.parametrize(
    "name",
    ["events.log", "events-2026027.log", "events-20260207.log.old", "events-20260207.0.log", "events-20260207.x.log",
     "other-20260207.log", "events-20260207.01.log", "events-20260207", "events-२०२६०२०७.log"],
)  # fmt: skip
def test_other_names_are_no_closed_files(tmp_path: Path, name: str):
    assert rotation_key(tmp_path / "events.log", name) is None
    (tmp_path / name).touch()
    (tmp_path / "events-20260101.log").mkdir()
    assert list_rotated(tmp_path / "events.log") == ()


def test_the_first_line_that_has_a_time_says_of_which_day_a_file_is(log: Path):
    log.write_bytes(b'garbage\n\n[1]\n{"ts": 5}\n' + b"[" * 50_000 + b"\n")
    write(log, "2026-02-07T10:00:00Z")
    assert rotate(log, at("2026-02-07 23:00:00")) is None
    assert rotate(log, at("2026-02-08 01:00:00")) is not None


def test_without_any_time_the_last_write_says_it(log: Path):
    log.write_bytes(b"garbage\n")
    os.utime(log, (1_770_458_400, 1_770_458_400))  # 2026-02-07 10:00 UTC
    assert rotate(log, at("2026-02-07 23:00:00")) is None
    assert rotate(log, at("2026-02-08 01:00:00")) is not None


def test_only_one_process_rotates_at_a_time(log: Path):
    write(log, "2026-02-07T10:00:00Z")
    other = os.open(log.parent, os.O_RDONLY)
    try:
        assert try_lock(other)
        assert rotate(log, at("2026-02-08 01:00:00")) is None
    finally:
        os.close(other)
    assert rotate(log, at("2026-02-08 01:00:00")) is not None


def test_nothing_to_rotate_is_no_error_and_a_directory_is_a_clear_one(log: Path):
    assert rotate(log, at("2026-02-08 01:00:00")) is None
    assert rotate_to_old(log) is None
    log.mkdir()
    assert copy_to_old(log.with_name("missing.log")) is None
    for call in (lambda: rotate(log, at("2026-02-08 01:00:00")), lambda: rotate_to_old(log), lambda: copy_to_old(log)):
        with pytest.raises(JournalUnavailable, match=r"cannot rotate .*events.log: it is not a regular file; move it"):
            call()
    with pytest.raises(JournalUnavailable, match="the directory has to exist"):
        rotate(log.parent / "nowhere" / "events.log", at("2026-02-08 01:00:00"))


def test_a_log_of_plain_text_is_renamed_to_old(tmp_path: Path):
    log = tmp_path / "system.log"
    log.write_text("first\n")
    assert rotate_to_old(log, max_bytes=7) is None
    done = rotate_to_old(log, max_bytes=6)
    assert done is not None
    assert (done.file.name, done.size) == ("system.log.old", 6)
    log.write_text("second\n")
    rotate_to_old(log, max_bytes=6)
    assert (tmp_path / "system.log.old").read_text() == "second\n"
    assert not log.exists()


def test_a_log_that_is_held_open_is_copied_to_old_and_its_writer_goes_on(tmp_path: Path):
    log = tmp_path / "supervisor.log"
    with open(log, "ab", buffering=0) as writer:
        writer.write(b"first\n")
        assert copy_to_old(log, max_bytes=7) is None
        done = copy_to_old(log, max_bytes=6)
        assert done is not None
        assert (done.file.name, done.size) == ("supervisor.log.old", 6)
        writer.write(b"second\n")
        assert log.read_text() == "second\n", "at the beginning, without a hole before it"
    assert (tmp_path / "supervisor.log.old").read_text() == "first\n"
    copy_to_old(log, max_bytes=6)
    assert (tmp_path / "supervisor.log.old").read_text() == "second\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["supervisor.log", "supervisor.log.old"]


def test_a_copy_that_is_cut_off_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log, old = tmp_path / "supervisor.log", tmp_path / "supervisor.log.old"
    log.write_text("much\n")
    old.write_text("older\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfileobj", full)
        with pytest.raises(JournalUnavailable, match="No space left"):
            copy_to_old(log, max_bytes=1)
    assert (log.read_text(), old.read_text()) == ("much\n", "older\n")
    copy_to_old(log, max_bytes=1)
    assert (log.read_text(), old.read_text()) == ("", "much\n")


def test_what_is_written_while_a_log_is_copied_is_copied_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "supervisor.log"
    log.write_text("before\n")
    rename = os.rename

    def rename_while_somebody_writes(source: Path, target: Path) -> None:
        with open(log, "a") as writer:
            writer.write("meanwhile\n")
        rename(source, target)

    monkeypatch.setattr("os.rename", rename_while_somebody_writes)
    done = copy_to_old(log, max_bytes=1)
    assert done is not None
    assert done.size == 17
    assert (log.read_text(), done.file.read_text()) == ("", "before\nmeanwhile\n")


def test_a_survey_sees_the_live_file_and_the_closed_ones(log: Path):
    seen = take_snapshot(log)
    assert seen is not None
    assert (seen.live, seen.rotated) == (None, ())
    write(log, "2026-02-07T10:00:00Z")
    inode = log.stat().st_ino
    rotate(log, at("2026-02-08 01:00:00"))
    seen = take_snapshot(log)
    assert seen is not None
    assert seen.live == log.stat().st_ino
    assert [(split.name, split.inode) for split in seen.rotated] == [("events-20260207.log", inode)]
